"""An undo that is a command is tested before its action is done, and looked at afterwards; nothing else is kept."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, NotUndone
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.trees import done, manifest, open_on

S = ActionState
pytestmark = pytest.mark.usefixtures("sealing_host")


def by_command(line: str, undo: str, **others: Any) -> dict[str, Any]:
    return {"do": "run", "command": ["sh", "-ec", line], "undo": ["sh", "-ec", undo], **others}


def but_times_and_inodes(root: Path) -> dict[str, Any]:
    """What a command can bring back of a tree; inodes and names of hard-linked files are not told apart by it."""
    return {path: (*facts[:3], facts[6], *facts[7:]) for path, facts in manifest(root).items()}


RIGHT = [
    ("mv docs moved", "mv moved docs"),
    ("echo more >> run.sh", "sed -i '$d' run.sh; chmod 4750 run.sh"),
    ("mkdir -p new/deep; echo x > new/deep/y", "rm -r new"),
    ("chmod 600 b.txt", "chmod 644 b.txt"),
    ("ln -s a.txt second", "rm second"),
    ("tr a-z A-Z < docs/deep/d.txt > t; mv t docs/deep/d.txt", "echo -n d > docs/deep/d.txt"),
    ("rm -r empty", "mkdir empty"),
]


@pytest.mark.parametrize(("line", "undo"), RIGHT, ids=str)
def test_an_undo_that_takes_back_is_used_and_nothing_else_is_kept(root: Path, session: Session, line: str, undo: str):
    before = but_times_and_inodes(root)
    proposal = session.propose(by_command(line, undo))
    assert proposal.plan.guarantee is Guarantee.EQUIVALENT
    assert but_times_and_inodes(root) == before
    session.run(proposal.action, proposal.plan.digest)
    after = but_times_and_inodes(root)
    for _ in range(2):
        assert os.listdir(root.parent / "state/stash" / proposal.action) == []
        assert session.journal.standing(proposal.action).kept_bytes == 0
        session.undo(proposal.action)
        assert but_times_and_inodes(root) == before
        session.redo(proposal.action)
        assert but_times_and_inodes(root) == after


WRONG = [
    ("echo x > new", "true", "'new' would not be as before"),
    ("echo x > new", "mv new newer", "'newer'"),
    ("echo other > b.txt", "echo something > b.txt", "'b.txt'"),
    ("rm -r docs", "mkdir docs", "'docs"),
    ("mv docs moved", "mv moved docs; rm b.txt", "'b.txt'"),
    ("chmod 600 b.txt", "chmod 640 b.txt", "'b.txt'"),
    ("ln -sf b.txt docs/link", "rm docs/link; ln -s ../b.txt docs/link", "'docs/link'"),
    ("echo x > new", "false", "exited with 1"),
    ("echo x > new", "echo False; exit 0", "'new'"),  # what it prints decides nothing
    ("true", "true", "changes nothing here"),
]


@pytest.mark.parametrize(("line", "undo", "rule"), WRONG)
def test_an_undo_that_does_not_take_back_is_refused_and_nothing_is_done(
    root: Path, session: Session, line: str, undo: str, rule: str
):
    before = manifest(root)
    with pytest.raises(InputError, match=rule):
        session.propose(by_command(line, undo))
    assert manifest(root) == before
    assert session.journal.standings() == []
    assert os.listdir(root.parent / "state/stash") == []


def test_names_alone_may_be_compared(root: Path, session: Session):
    operation = by_command("rm -r docs/deep", "mkdir docs/deep; : > docs/deep/d.txt", undo_compared="names")
    proposal = session.propose(operation)
    assert proposal.plan.guarantee is Guarantee.COMPENSATING
    session.run(proposal.action, proposal.plan.digest)
    session.undo(proposal.action)
    assert (root / "docs/deep/d.txt").read_bytes() == b""
    with pytest.raises(InputError, match="would not be as before"):
        session.propose(by_command("rm -r docs/deep", "mkdir docs/deep; mkdir docs/deep/d.txt", undo_compared="names"))


def test_generated_code_brings_generated_undo(root: Path, session: Session):
    before = but_times_and_inodes(root)
    source = "import os; os.rename('b.txt', 'c.txt')"
    action = done(session, do="python", source=source, undo="import os; os.rename('c.txt', 'b.txt')")
    session.undo(action)
    assert but_times_and_inodes(root) == before
    with pytest.raises(InputError, match="cannot be tested for a program with secrets"):
        session.propose({"do": "python", "source": "", "undo": "1", "secrets": ["api"]})


def test_an_undo_whose_world_has_changed_is_looked_at_and_stands_or_is_taken_back_itself(root: Path, session: Session):
    line, undo = "cp b.txt one; cp b.txt two", "rm one; rm two"
    action = done(session, **by_command(line, undo))
    (root / "one").write_text("theirs")
    found = manifest(root)
    with pytest.raises(InputError, match="somebody else has changed one"):
        session.undo(action)
    with pytest.raises(InputError, match="the undo is a command: force it"):
        session.undo(action, on_conflict=Choice.SAVE_ASIDE)
    assert manifest(root) == found
    session.undo(action, on_conflict=Choice.FORCE)
    assert not (root / "one").exists()
    session.redo(action)
    assert (root / "one").read_text() == "theirs"

    action = done(session, **by_command("mv docs/c.txt c.txt", "mv c.txt docs/c.txt"))
    (root / "c.txt").unlink()
    with pytest.raises(InputError, match="exited with 1"):
        session.undo(action, on_conflict=Choice.FORCE)
    assert session.journal.standing(action).state is S.EXECUTED


def test_an_undo_that_leaves_something_else_is_taken_back_itself(root: Path, session: Session):
    undo = "if [ -s empty/sign ]; then echo no > docs/deep/d.txt; else printf d > docs/deep/d.txt; fi"
    action = done(session, **by_command("echo x > docs/deep/d.txt", undo))
    (root / "empty/sign").write_text("it is another world")
    found = {path: facts for path, facts in manifest(root).items() if not path.startswith("docs")}
    with pytest.raises(NotUndone, match=r"'docs/deep/d\.txt' would not be as before"):
        session.undo(action)
    assert (root / "docs/deep/d.txt").read_text() == "x\n"
    assert session.journal.standing(action).state is S.UNDO_FAILED
    (root / "empty/sign").write_text("")
    session.undo(action)
    assert (root / "docs/deep/d.txt").read_text() == "d"
    assert {path for path in manifest(root) if not path.startswith("docs")} == found.keys()


def test_an_undo_changes_nothing_beyond_its_action(root: Path, session: Session):
    undo = "rm new; if [ -s empty/sign ]; then rm b.txt; fi"
    action = done(session, **by_command("echo x > new", undo))
    (root / "empty/sign").write_text("it is another world")
    with pytest.raises(InputError, match=r"would change 'b\.txt', which it did not touch"):
        session.undo(action)
    assert (root / "b.txt").exists()
    assert session.journal.standing(action).state is S.EXECUTED


def test_killed_at_every_event_of_an_undo_by_a_command_it_comes_to_its_end_or_can_be_tried_again(
    root: Path, dies_at: Callable[..., bool]
):
    with open_on(root) as session:
        before = but_times_and_inodes(root)
        action = done(session, **by_command("mv docs moved; echo x > b.txt", "mv moved docs; : > b.txt"))
        after = but_times_and_inodes(root)
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, root, {"undo": action})
        with open_on(root) as session:
            if session.journal.standing(action).state is S.UNDONE:
                assert but_times_and_inodes(root) == before
                session.redo(action)
            assert but_times_and_inodes(root) == after, deadly
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 8
