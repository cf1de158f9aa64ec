"""An undo that a model brings is used where it is exact; what its action replaced is kept in any case."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.deaths import SOME_OR_EACH, dies_at
from tests.runtime.trees import done, manifest, open_on

S = ActionState
pytestmark = pytest.mark.usefixtures("sealing_host")


def by_command(line: str, undo: str, **others: Any) -> dict[str, Any]:
    return {"do": "run", "command": ["sh", "-ec", line], "undo": ["sh", "-ec", undo], **others}


def was_by_command(session: Session, action: str) -> bool:
    return bool(session.journal.standing(action).body.get("is_preferred"))


EXACT = [
    ("mkdir -p new/deep; echo x > new/deep/y", "rm -r new"),
    ("chmod 600 b.txt", "chmod 644 b.txt"),
    ("ln -s a.txt second", "rm second"),
    ("chmod 711 empty; : > docs/new", "rm docs/new; chmod 755 empty"),
    ("cp -a docs second", "rm -r second"),
]


@pytest.mark.parametrize(("line", "undo"), EXACT, ids=str)
def test_an_undo_that_is_exact_is_used_and_what_was_replaced_is_kept_beside_it(
    root: Path, session: Session, line: str, undo: str
):
    before = manifest(root)
    proposal = session.propose(by_command(line, undo))
    assert proposal.plan.guarantee is Guarantee.EXACT
    assert "its own undo was tested, and restores all, inodes included" in proposal.plan.changes
    assert manifest(root) == before
    session.run(proposal.action, proposal.plan.digest)
    after = manifest(root)
    for _ in range(3):
        session.undo(proposal.action)
        assert was_by_command(session, proposal.action)
        assert manifest(root) == before
        session.redo(proposal.action)
        assert {path: facts for path, facts in manifest(root).items() if path != "."}.keys() == after.keys() - {"."}
    assert session.audit() == []


NEVER_ENDS = "while :; do :; done"
_SAME = "would be other inodes with the same content"
HOSTILE = [
    ("mv b.txt moved", "mv moved b.txt", f"'b.txt' {_SAME}"),
    ("mv docs/deep moved", "mv moved docs/deep", "'docs/deep'"),
    ("echo x > new", "true", "'new' would not be as before"),
    ("echo x > b.txt", "true", "'b.txt' would not be as before"),
    ("echo x > new", "mv new newer", "'newer'"),
    ("echo other > docs/c.txt", "echo something > docs/c.txt", "'docs/c.txt'"),
    ("echo other > docs/c.txt", "rm -rf ./* .[!.]*", "'"),
    ("echo other > docs/c.txt", "rm docs/c.txt", "'docs/c.txt'"),
    ("rm -r docs/deep", "mkdir docs/deep; : > docs/deep/d.txt", "'docs/deep"),  # names alone
    ("rm -r empty", "mkdir empty", "'empty'"),  # but for its time
    ("rm -r docs", "mkdir docs", "'docs"),
    ("mv docs/deep moved", "mv moved docs/deep; rm b.txt", "'b.txt'"),
    ("echo x > new", "rm new; touch b.txt", "'b.txt'"),  # times
    ("echo x > b.txt", ": > b.txt", "'b.txt'"),  # but for its time, it is as it was
    ("chmod 600 b.txt", "chmod 640 b.txt", "'b.txt'"),
    ("echo x > new", "rm new; chmod 777 docs", "'docs'"),
    ("echo x > new", "rm new; ln b.txt second", "'second'"),
    ("ln -sf b.txt docs/link", "rm docs/link; ln -s ../b.txt docs/link", "'docs/link'"),
    ("echo x > new", "false", "exited with 1"),
    ("echo x > new", "kill -9 $$", "signal"),
    ("echo x > new", NEVER_ENDS, "took more than 0.5 s"),
    ("echo x > new", "echo undone; exit 0", "'new'"),  # what it prints decides nothing
    ("true", "true", "the action changes nothing here"),
]


@pytest.mark.parametrize(("line", "undo", "why"), HOSTILE)
def test_an_undo_that_is_not_exact_is_ignored_with_a_warning_and_all_comes_back(
    root: Path, session: Session, line: str, undo: str, why: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("autoclave.runtime.files.commands._UNDO_TEST_S", 0.5 if undo == NEVER_ENDS else 10.0)
    before = manifest(root)
    proposal = session.propose(by_command(line, undo))
    assert proposal.plan.guarantee is Guarantee.EXACT
    (warning,) = [each for each in proposal.plan.changes if each.startswith("warning: its own undo is ignored: ")]
    assert why in warning
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert not was_by_command(session, proposal.action)
    assert manifest(root) == before


LATE = "[ -s empty/sign ] || exit 0; "
LATER = [
    ("rm new; [ ! -s empty/sign ] || rm -rf b.txt docs", "would change 'b.txt', 'docs', which the action did not"),
    ("[ ! -s empty/sign ]; rm new", "exited with 1"),
    (f"if [ -s empty/sign ]; then {NEVER_ENDS}; fi; rm new", "took more than"),
    ("rm new; [ ! -s empty/sign ] || mkdir new", ""),  # found only when it is done
    ("[ -s empty/sign ] || rm new", ""),
]


@pytest.mark.parametrize(("undo", "why"), LATER)
def test_an_undo_that_passes_its_test_and_does_something_else_later_is_not_kept(
    root: Path, session: Session, undo: str, why: str
):
    before = manifest(root)
    action = done(session, **by_command("echo x > new", undo, timeout_s=3))
    (root / "empty/sign").write_text("it is another world")
    session.undo(action)
    assert not was_by_command(session, action)
    assert why in session.journal.standing(action).body.get("ignored", "")
    (root / "empty/sign").unlink()
    os.utime(root / "empty", ns=(0, before["empty"][3]))
    assert manifest(root) == before
    assert session.audit() == []


def test_the_only_copy_comes_back_whatever_undo_the_model_gives(root: Path, session: Session):
    (root / "thesis.txt").write_text("three years")
    before = manifest(root)
    command = ["sh", "-c", "echo gone > thesis.txt"]
    with pytest.raises(InputError, match="undo_compared"):
        session.propose({"do": "run", "command": command, "undo": ["true"], "undo_compared": "names"})
    action = done(session, do="run", command=command, undo=["true"])
    assert (root / "thesis.txt").read_text() == "gone\n"
    session.undo(action)
    assert (root / "thesis.txt").read_text() == "three years"
    assert manifest(root) == before


@pytest.fixture
def by_names(session: Session) -> Session:
    """A session whose user has set that names alone are compared."""
    session.actions.managers["run"].commands._undo_compared = "names"  # pyright: ignore
    return session


def test_a_user_may_set_that_names_alone_are_compared_and_the_content_is_kept_all_the_same(
    root: Path, by_names: Session
):
    session = by_names
    before = manifest(root)
    proposal = session.propose(by_command("rm -r docs/deep", "mkdir docs/deep; : > docs/deep/d.txt"))
    assert proposal.plan.guarantee is Guarantee.COMPENSATING
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert (root / "docs/deep/d.txt").read_bytes() == b""
    (stashed,) = [
        path for path in (root.parent / "state/stash" / proposal.action).rglob("d.txt") if path.stat().st_size
    ]
    assert stashed.read_text() == "d"
    wrong = session.propose(by_command("rm -r empty", "echo > empty"))
    assert wrong.plan.guarantee is Guarantee.EXACT
    session.run(wrong.action, wrong.plan.digest)
    session.undo(wrong.action)
    assert manifest(root)["empty"] == before["empty"]


def test_generated_code_brings_generated_undo(root: Path, session: Session):
    before = manifest(root)
    source = "open('new', 'w').write('x')"
    action = done(session, do="python", source=source, undo="import os; os.remove('new')")
    session.undo(action)
    assert was_by_command(session, action)
    assert manifest(root) == before


def test_where_others_changed_what_it_left_an_action_is_undone_by_what_is_kept(root: Path, session: Session):
    action = done(session, **by_command("cp b.txt one; cp b.txt two", "rm one; rm two"))
    (root / "one").write_text("theirs")
    found = manifest(root)
    with pytest.raises(InputError, match="somebody else has changed one"):
        session.undo(action)
    assert manifest(root) == found
    session.undo(action, on_conflict=Choice.SAVE_ASIDE)
    assert not was_by_command(session, action)
    assert not (root / "one").exists()
    assert (root / f"one.kept-{action}").read_text() == "theirs"


@SOME_OR_EACH
def test_killed_at_every_event_of_an_undo_by_a_command_it_comes_to_its_end_or_can_be_tried_again(
    root: Path, every: int
):
    with open_on(root) as session:
        before = manifest(root)
        action = done(session, **by_command("cp -a docs moved; echo x > new", "rm -r moved new"))
        after = manifest(root)
    deadly = 0
    for deadly in itertools.count(1, every):
        was_killed = dies_at(deadly, root, {"undo": action})
        with open_on(root) as session:
            if session.journal.standing(action).state is S.UNDONE:
                assert manifest(root) == before
                session.redo(action)
            assert set(manifest(root)) == set(after), deadly
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 8


def test_a_state_that_keeps_what_was_replaced_in_git_is_refused_before_anything_is_written(root: Path):
    state = root.parent / "state"
    (state / "history.git").mkdir(parents=True)
    state.chmod(0o700)
    with pytest.raises(InputError, match=r"only versions before read. Fix: .*git --git-dir"):
        open_on(root)
    assert [path.name for path in state.iterdir()] == ["history.git"]
