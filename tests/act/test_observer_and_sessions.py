"""What sessions do while a tool of another program runs is theirs, and an undo of the tool use leaves it."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from autoclave.act.observer import Observer, ToolUse
from autoclave.core import InputError
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.tree_digest import survey, tree_digest
from autoclave.runtime.footprints import with_those_above
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.act.test_observer import BASH, used
from tests.act.tool_uses import entries, files, folders, use_tool
from tests.runtime.trees import build_tree, done, granted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_tree(tmp_path / "tree")


def test_what_a_session_does_during_a_tool_use_is_not_recorded_again(root: Path):
    with Observer(root) as observer:
        earlier = used(observer, lambda: (root / "b.txt").write_text("tool"))

        def tool() -> None:
            with granted(open_session(root)) as session:
                done(session, do="write", path="a.txt", content="by a session")
                done(session, do="delete", path="docs", recursive=True)
                session.undo(earlier)
            (root / "run.sh").write_text("tool")

        action = used(observer, tool)
    with open_session(root) as session:
        assert [step["path"] for step in session.actions.receipt(action)["steps"]] == ["run.sh"]
        assert len(session.journal.standings()) == 4


MIXED = "not covered: {!r}, which another action has changed too"


@pytest.mark.parametrize(
    ("by_session", "by_tool", "mixed", "expected"),
    [
        (["run.sh"], "echo tool > run.sh; echo tool > b.txt", ["run.sh"], {"run.sh": "tool\n", "b.txt": ""}),
        (["d/1"], "echo tool > d/2; echo tool > b.txt", ["d"], {"d/1": "session", "d/2": "tool\n", "b.txt": ""}),
        (["d/1", "d/2"], "echo tool > b.txt", [], {"d/1": "session", "d/2": "session", "b.txt": ""}),
        (["docs/1"], "rm -r docs", ["docs/1"], {"docs/1": None, "docs/deep/d.txt": "d"}),
    ],
)
def test_an_undo_does_not_take_back_what_another_action_did_during_the_tool_use(
    root: Path, by_session: list[str], by_tool: str, mixed: list[str], expected: dict[str, str | None]
):
    with Observer(root) as observer:
        observer.before(BASH)
        with granted(open_session(root)) as session:
            for path in by_session:
                done(session, do="write", path=path, content="session")
        subprocess.run(["sh", "-c", by_tool], cwd=root, check=True)
        action, told = observer.after(BASH)
    assert told == [MIXED.format(path) for path in mixed]
    with open_session(root) as session:
        assert session.journal.standing(action).proposed["guarantee"] == ("none" if mixed else "exact")
        session.undo(action)
    assert {path: (root / path).read_text() if (root / path).exists() else None for path in expected} == expected


def test_a_new_folder_stays_with_what_another_action_did_in_it(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "d").mkdir()
        with granted(open_session(root)) as session:
            done(session, do="write", path="d/1", content="session")
        (root / "d/2").write_text("tool")
        action, told = observer.after(BASH)
    assert told == ["not covered: the new folder 'd', in which another action has changed something"]
    with open_session(root) as session:
        session.undo(action)
    assert [path.name for path in (root / "d").iterdir()] == ["1"]


def test_what_another_action_did_is_the_pre_image_of_a_later_use(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        observer.before(ToolUse("2", "Edit", "", "other"))
        with granted(open_session(root)) as session:
            done(session, do="write", path="run.sh", content="session")
        observer.after(BASH)
        observer.catch_up()
        (root / "run.sh").write_text("tool")
        action, told = observer.after(ToolUse("2", "Edit", "", "other"))
    assert told == []
    with open_session(root) as session:
        session.undo(action)
    assert (root / "run.sh").read_text() == "session"


def act_at_random(draw: random.Random, root: Path, session: Session) -> None:
    path = str(draw.choice(entries(root)).relative_to(root))
    match draw.randrange(4):
        case 0:
            done(session, do="write", path=str(draw.choice(files(root)).relative_to(root)), content="session")
        case 1:
            done(session, do="write", path=draw.choice(["n/1", "n/2", "docs/n", "n/a/b"]), content=f"{draw.random()}")
        case 2:
            done(session, do="delete", path=path, recursive=True)
        case _:
            to = draw.choice(folders(root)) / f"moved{draw.randrange(99)}"
            done(session, do="move", path=path, to=str(to.relative_to(root)))


def as_left(root: Path, journal: Journal) -> dict[str, str]:
    """The digests of the paths that are as the last action of a session left them, of one name."""
    left = dict[str, str]()
    for record in journal.records_of_kinds(ActionState.EXECUTED):
        if "is_observed" not in record.body:
            after = record.body["after"]
            left = {each: left[each] for each in left if after.keys().isdisjoint(with_those_above(each))} | after
    found = dict[str, str]()
    with Scope(root) as scope:
        for path, digest in left.items():
            try:
                is_alone = not survey(path, scope).shared  # else a tool changes it by another name
                now = tree_digest(path, scope, digest)
            except InputError:  # below a file there is nothing
                is_alone, now = True, ""
            found |= {path: digest} if is_alone and now == digest else {}
    return found


@pytest.mark.parametrize("seed", [102, 103, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(104, 300))])
def test_what_sessions_left_is_there_after_the_undo_of_any_tool_use(root: Path, seed: int):
    draw = random.Random(seed)
    with Observer(root) as observer:
        observer.before(BASH)
        use_tool(draw, root)
        with granted(open_session(root)) as session:
            for _ in range(3):
                with contextlib.suppress(InputError):
                    act_at_random(draw, root, session)
        use_tool(draw, root)
        told = observer.after(BASH)[1]
    with open_session(root) as session:
        left = as_left(root, session.journal)
        observed = [each for each in session.journal.standings() if each.proposed["by"] == "observer"]
        assert not told or not observed or "none" in [each.proposed["guarantee"] for each in observed]
        session.undo(*(each.action for each in observed))
        assert left.items() <= as_left(root, session.journal).items()
