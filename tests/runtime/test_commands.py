"""Commands and generated code run over the tree, which changes only when they are applied, and exactly as planned."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.files.capture import remove_tree
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.trees import done, facts_without_times, manifest, open_on, texts

S = ActionState


pytestmark = pytest.mark.usefixtures("sealing_host")


def sh(line: str, **others: Any) -> dict[str, Any]:
    return {"do": "run", "command": ["sh", "-ec", line], **others}


LINES = [
    "echo other > a.txt",  # one of two names
    "echo more >> docs/c.txt",  # extended attributes
    ": > b.txt; echo x > b.txt",
    "rm a.txt 'docs/same as a'",
    "rm -r docs",
    "rm -r docs; mkdir docs; echo new > docs/c.txt",  # an opaque folder
    "rm -r docs; echo now a file > docs",
    "rm a.txt; mkdir -p a.txt/deep; echo x > a.txt/deep/y",
    "rm b.txt; ln -s docs b.txt",
    "rm docs/link; mkdir docs/link",
    "rm docs/fifo; echo x > docs/fifo",
    "mkfifo pipe; ln a.txt third; ln -s nowhere dangling2",
    "mv docs moved; mv moved/deep moved/deeper",
    "mv a.txt t; mv b.txt a.txt; mv t b.txt",  # names swapped
    "chmod 600 run.sh docs/c.txt; chmod 700 docs",
    "chmod 4711 run.sh; chmod 1777 empty",
    "touch -d 2001-02-03 a.txt docs/deep/d.txt empty",
    "touch -h -d 2001-02-03 docs/link",
    "dd if=run.sh of=holes bs=1k count=3 seek=700 conv=notrunc",
    "truncate -s 5M sparse; truncate -s 3 docs/c.txt",
    "printf x > 'new\nline'; printf y > ' -rf'; printf z > \"$(printf 'b\\377')\"",
    "mkdir -p $(seq -s / 40); echo deep > $(seq -s / 40)/file",
    "cp -a docs copy",
    "chmod 000 b.txt; chmod 555 empty",
    "mkdir -p w && echo x > w/x && chmod 555 w",
    "rm -rf ./* 2>/dev/null || true",
]


@pytest.mark.parametrize("line", LINES)
def test_what_a_command_did_is_applied_undone_and_done_again(root: Path, session: Session, line: str):
    plain = root.parent / "plain"
    subprocess.run(["cp", "-a", root, plain], check=True)
    subprocess.run(["sh", "-ec", line], cwd=plain, check=True, capture_output=True)
    before = manifest(root)
    proposal = session.propose(sh(line))
    assert manifest(root) == before
    session.run(proposal.action, proposal.plan.digest)
    is_overlay = proposal.plan.output["method"] == "overlay"  # which gives each name of a file its own copy
    left_out = ("a.txt", "docs/same as a") if line.startswith("echo other") and is_overlay else ()
    assert comparable(root, left_out, is_overlay) == comparable(plain, left_out, is_overlay)
    after = manifest(root)
    session.undo(proposal.action)
    assert manifest(root) == before
    session.redo(proposal.action)
    assert {path: facts[:5] for path, facts in manifest(root).items() if path not in changed_folders(after)} == {
        path: facts[:5] for path, facts in after.items() if path not in changed_folders(after)
    }
    session.undo(proposal.action)
    assert manifest(root) == before
    assert session.audit() == []
    assert [path.name for path in (root.parent / "state/stash").iterdir()] == [proposal.action]


def comparable(root: Path, left_out: tuple[str, ...], is_overlay: bool) -> dict[str, Any]:
    """Kinds, modes, owners, links and contents; a file of several names has them in a group.

    Not, for an overlay, the file that has two names in the tree.
    """
    found = manifest(root)
    groups: dict[int, list[str]] = {}
    for path, facts in found.items():
        groups.setdefault(facts[4], []).append(path)
    return {
        path: (*facts[:3], facts[7], facts[8], None if is_overlay and facts[7] == b"first\n" else groups[facts[4]])
        for path, facts in found.items()
        if path not in left_out
    }


def changed_folders(found: dict[str, Any]) -> set[str]:
    """Folders, whose time of change is that of the last renaming in them."""
    return {path for path, facts in found.items() if facts[7] is None}


def test_only_what_it_may_see_is_there(root: Path, session: Session):
    done(session, **sh("pwd > where; ls -a > seen", within="docs/deep"))
    assert (root / "docs/deep/where").read_text() == "/work\n"
    assert (root / "docs/deep/seen").read_text().split() == [".", "..", "d.txt", "seen", "where"]
    with pytest.raises(InputError, match="'docs/link': cannot be read as a folder"):
        session.propose(sh("true", within="docs/link"))


def test_generated_code_is_run_like_a_command(root: Path, session: Session):
    source = "import sys, pathlib\npathlib.Path('out').write_text(sys.stdin.read().upper())\nprint('said')"
    proposal = session.propose({"do": "python", "source": source, "stdin": "loud"})
    assert proposal.plan.output["stdout"] == "said\n"
    session.run(proposal.action, proposal.plan.digest)
    assert (root / "out").read_text() == "LOUD"
    with pytest.raises(InputError, match="no list of allowed packages"):
        session.propose({"do": "python", "source": "import requests", "packages": ["requests"]})


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (sh("echo so far > a.txt; echo no >&2; exit 3"), r"run: exited with 3: no; nothing was done"),
        (sh("kill -9 $$"), "was ended by signal 9"),
        (sh("sleep 20", timeout_s=0.3), r"took more than 0\.3 s"),
        ({"do": "run", "command": ["no-such"]}, "exited with 127: no-such: No such file"),
        ({"do": "python", "source": "import nothing_like_it"}, "python: exited with 1: .*No module named"),
    ],
)
def test_a_command_that_fails_changes_nothing(root: Path, session: Session, operation: dict[str, Any], rule: str):
    before = manifest(root)
    with pytest.raises(InputError, match=f"(?s){rule}"):
        session.propose(operation)
    assert manifest(root) == before
    assert list((root.parent / "state/stash").iterdir()) == []
    accepted = session.propose(sh("echo x > new; exit 3", accepted_codes=[3]))
    assert accepted.plan.output["exit_code"] == 3


def test_what_was_planned_is_applied_if_the_command_would_see_the_same_now(root: Path, session: Session):
    proposal = session.propose(sh("date +%N > now; cat d.txt > copied", within="docs/deep"))
    now = proposal.plan.output
    (root / "b.txt").write_text("it does not see this")
    session.run(proposal.action, proposal.plan.digest)
    assert (root / "docs/deep/copied").read_text() == "d"
    assert now["exit_code"] == 0
    for meddle in (
        lambda: (root / "docs/deep/d.txt").write_text("later"),
        lambda: (root / "docs/deep/more").touch(),
        lambda: (root / "docs/deep/d.txt").chmod(0o600),
        lambda: (root / "docs/deep").chmod(0o700),
    ):
        proposal = session.propose(sh("cat deep/d.txt > copied; ls -l > listing", within="docs"))
        meddle()
        with pytest.raises(InputError, match="has changed since it was planned"):
            session.run(proposal.action, proposal.plan.digest)
    other = session.propose(sh("echo ours > a.txt"))
    (root / "a.txt").write_text("theirs")
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(other.action, other.plan.digest)
    third = session.propose(sh("echo ours > new2"))
    (root.parent / "state/stash" / third.action / "0").write_text("forged")
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(third.action, third.plan.digest)


@pytest.mark.parametrize("path", ["b.txt", "docs/c.txt"])  # one that it writes, and one that it may have read
def test_what_others_changed_while_a_command_ran_is_not_overwritten(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch, path: str
):
    commands = session.actions.managers["run"]._commands  # pyright: ignore
    outcome = commands._outcome

    def meanwhile(*given: Any) -> Any:
        (root / path).write_text("theirs")
        return outcome(*given)

    monkeypatch.setattr(commands, "_outcome", meanwhile)
    proposal = session.propose(sh('echo "$(cat b.txt docs/c.txt) mine" > b.txt'))
    with pytest.raises(InputError, match="what it is about has changed since it was planned"):
        session.run(proposal.action, proposal.plan.digest)
    assert (root / path).read_text() == "theirs"


def test_a_command_makes_no_link_to_where_none_led(root: Path, session: Session):
    before = manifest(root)
    for line, path in (
        ("ln -s /etc/passwd out", "out"),
        ("ln -s ../secret empty/in; mv empty/in out", "out"),
        ("mkdir -p n/m; ln -s ../../../secret n/m/out", "n/m/out"),
        ("ln -s docs/../../secret out", "out"),
    ):
        with pytest.raises(InputError, match=f"path '{path}': is made a link to .*, which leads out of the folder"):
            session.propose(sh(line))
    assert manifest(root) == before
    assert list((root.parent / "state/stash").iterdir()) == []
    for line in ("mv dangling docs", "cp -a docs copy", "ln -s ../b.txt docs/in", f"ln -s {root}/b.txt absolute"):
        done(session, **sh(line))


def test_facts_that_a_command_sets_of_one_name_stay_away_from_the_others(root: Path, session: Session):
    os.link(root / "holes", root.parent / "outside")
    outside = (root.parent / "outside").stat()
    before = manifest(root)
    lines = (
        "chmod 600 holes; touch -d 2001-01-01 holes",
        "rm 'docs/same as a'; chmod 600 a.txt",
        "rm -r docs; touch a.txt",
    )
    for line in lines:
        action = done(session, **sh(line))
        now = (root.parent / "outside").stat()
        assert (now.st_mode, now.st_mtime_ns) == (outside.st_mode, outside.st_mtime_ns)
        session.undo(action)
        assert manifest(root) == before


def test_the_folder_that_a_command_sees_is_changed_and_that_of_the_session_is_told_of(root: Path, session: Session):
    before = manifest(root)
    (root / "docs").chmod(0o2750)
    with_mode = manifest(root)
    action = done(session, **sh("test $(stat -c %a .) = 2750; chmod 701 .; echo x > new", within="docs"))
    assert (root / "docs").stat().st_mode & 0o7777 == 0o2701
    session.undo(action)
    assert manifest(root) == with_mode
    proposal = session.propose(sh("chmod 700 .; rm b.txt"))
    assert proposal.plan.changes == (
        "delete 'b.txt'",
        "not done: mode of the folder itself, which is not its content",
    )
    session.run(proposal.action, proposal.plan.digest)
    assert manifest(root)["."][:3] == before["."][:3]
    with pytest.raises(InputError, match="'docs' would not be as before"):
        session.propose(sh("chmod 700 .", within="docs", undo=["true"]))


def test_a_very_deep_tree_that_a_command_made_goes_and_comes_back(root: Path, session: Session):
    before = manifest(root)
    source = "import os\nfor i in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('last', 'w').close()"
    try:
        session.undo(done(session, do="python", source=source, within="empty"))
        assert manifest(root) == before
    finally:
        remove_tree(root.parent / "state/stash")  # who clears the folders of tests away may not go that deep


def test_a_later_command_may_have_read_what_an_earlier_one_wrote(root: Path, session: Session):
    first = done(session, do="write", path="docs/in", content="1")
    elsewhere = done(session, **sh("echo 1 > x", within="empty"))
    reader = done(session, **sh("cat in > out", within="docs"))
    assert session.dependents_of(first) == [reader]
    assert session.dependents_of(elsewhere) == []
    assert session.groups() == [[first, elsewhere], [reader]]
    with pytest.raises(InputError, match=f"{reader} came later and depend on it"):
        session.undo(first)
    assert session.undo_group(2) == [reader]
    assert session.undo_group(1) == [elsewhere, first]


def test_killed_at_every_event_of_a_command_the_tree_is_as_before_or_as_after(root: Path, dies_at: Callable[..., bool]):
    operation = sh("echo x >> a.txt; rm -r docs/deep; mkdir -p n/m; chmod 700 empty")
    before = manifest(root)
    with open_on(root) as session:
        action = done(session, **operation)
        after = facts_without_times(manifest(root))
        session.undo(action)
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, root, operation)
        with open_on(root) as session:
            last = session.journal.standings()[-1]
            assert last.state not in (S.EXECUTING, S.IN_DOUBT)
            if last.state is S.EXECUTED:
                assert facts_without_times(manifest(root)) == after
                session.undo(last.action)
            assert manifest(root) == before, (deadly, last)
        if not was_killed:
            break
    assert deadly > 12


NUM_SEEDS = 100 if os.environ.get("AUTOCLAVE_SOAK") else 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_random_commands_taken_back_in_random_order_leave_what_a_replay_without_them_leaves(root: Path, seed: int):
    draw = random.Random(seed)
    copy = root.parent / "copy"
    subprocess.run(["cp", "-a", root, copy], check=True)
    with open_on(root) as session:
        acts: dict[str, str] = {}
        for number in range(8):
            line = draw.choice(_RANDOM).format(
                number=number, path=draw.choice(["a.txt", "b.txt", "docs/c.txt", "docs"])
            )
            within = draw.choice(["", "docs", "empty"])
            try:
                acts[done(session, **sh(line, within=within))] = (within, line)  # pyright: ignore
            except InputError:
                continue
            if draw.random() < 0.4 and (standing := [each.action for each in session.actions.standing_order()]):
                for undone in session.undo(draw.choice(standing), dependents=True):
                    del acts[undone]
        for within, line in acts.values():
            subprocess.run(["sh", "-ec", line], cwd=copy / within, check=True, capture_output=True)
        assert texts(root) == texts(copy)
        assert session.audit() == []


_RANDOM = [
    "echo {number} > new{number}",
    "echo {number} >> {path}",
    "rm -rf {path}",
    "mkdir -p m{number}/x; cp -r . ../work/m{number}/x 2>/dev/null || true; rm -rf m{number}/x/m{number}",
    "for f in *; do mv $f z$f; done",
    "chmod 600 {path}; ls > listing",
    "cat *.txt > all 2>/dev/null || true",
]
