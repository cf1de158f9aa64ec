"""File actions are done, taken back and done again; the tree is exactly as it was each time, also if a process dies."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.files import steps as steps_module
from autoclave.runtime.interface import Choice, NotPermitted, NotRedone, NotUndone
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.deaths import SOME_OR_EACH, dies_at
from tests.runtime.trees import done, facts_without_times, manifest, open_on, texts

S = ActionState


OPERATIONS: list[dict[str, Any]] = [
    {"do": "write", "path": "new.txt", "content": "new"},
    {"do": "write", "path": "new", "content_base64": "AAH/", "mode": 0o600},
    {"do": "write", "path": "a.txt", "content": "other"},  # one of two names
    {"do": "write", "path": "docs/c.txt", "content": "other"},  # extended attributes
    {"do": "write", "path": "run.sh", "content": "#!/bin/bash\n"},
    {"do": "write", "path": "odd \udcff\nname", "content": "\udcfe"},
    {"do": "append", "path": "docs/c.txt", "content": "more"},
    {"do": "append", "path": "b.txt", "content": "no longer empty"},
    {"do": "make_folder", "path": "one"},
    {"do": "make_folder", "path": "docs/x/y/z"},
    {"do": "make_link", "path": "docs/deep/up", "target": "../../a.txt"},
    {"do": "delete", "path": "a.txt"},
    {"do": "delete", "path": "empty"},
    {"do": "delete", "path": "docs/link"},
    {"do": "delete", "path": "dangling"},
    {"do": "delete", "path": "docs/fifo"},
    {"do": "delete", "path": "holes"},
    {"do": "delete", "path": "docs", "recursive": True},
    {"do": "move", "path": "a.txt", "to": "docs/deep/e.txt"},
    {"do": "move", "path": "docs", "to": "empty/docs"},
    {"do": "move", "path": "b.txt", "to": "a.txt", "replace": True},
    {"do": "set_mode", "path": "run.sh", "mode": 0o600},
    {"do": "set_mode", "path": "docs", "mode": 0o1777},
    {"do": "set_mode", "path": "b.txt", "mode": 0},
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each['do']}-{each['path']}")
def test_what_was_done_is_taken_back_exactly_and_done_again(root: Path, opened: Session, operation: dict[str, Any]):
    before = manifest(root)
    action = done(opened, **operation)
    after = manifest(root)
    assert after != before
    assert opened.undo(action) == [action]
    assert manifest(root) == before
    opened.redo(action)
    assert {path: facts[:3] for path, facts in manifest(root).items()} == {p: facts[:3] for p, facts in after.items()}
    opened.undo(action)
    assert manifest(root) == before
    assert opened.journal.standing(action).state is S.UNDONE
    assert opened.audit() == []


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ({"do": "write", "path": "../out", "content": ""}, "relative to the folder"),
        ({"do": "write", "path": "/etc/passwd", "content": ""}, "relative to the folder"),
        ({"do": "write", "path": "a\0b", "content": ""}, "relative to the folder"),
        ({"do": "delete", "path": "./a.txt"}, "relative to the folder"),
        ({"do": "move", "path": "a.txt", "to": "docs/.."}, "relative to the folder"),
        ({"do": "write", "path": "proc/self/fd/3", "content": ""}, "links are not followed"),
        ({"do": "write", "path": "way-out/x", "content": ""}, "links are not followed"),
        ({"do": "write", "path": "a.txt/x", "content": ""}, "no folder that can be entered"),
        ({"do": "move", "path": "a.txt", "to": "nowhere/x"}, "there is no folder 'nowhere'"),
        ({"do": "write", "path": "way-out", "content": ""}, "is a link, not a file"),
        ({"do": "append", "path": "docs/link", "content": ""}, "is a link, not a file"),
        ({"do": "write", "path": "docs", "content": ""}, "is a folder, not a file"),
        ({"do": "write", "path": "x", "content": "a", "content_base64": "AA=="}, "give either"),
        ({"do": "write", "path": "x", "content_base64": "?"}, "is not valid base64"),
        ({"do": "make_link", "path": "x", "target": "/etc"}, "stays in the folder"),
        ({"do": "make_link", "path": "docs/x", "target": "../../out"}, "stays in the folder"),
        ({"do": "make_link", "path": "a.txt", "target": "b.txt"}, "exists already"),
        ({"do": "delete", "path": "docs"}, "recursive = true"),
        ({"do": "delete", "path": "nothing"}, "there is nothing"),
        ({"do": "move", "path": "a.txt", "to": "b.txt"}, "replace = true"),
        ({"do": "move", "path": "a.txt", "to": "docs", "replace": True}, "exists already"),
        ({"do": "move", "path": "docs", "to": "docs/deep/docs"}, "one below the other"),
        ({"do": "set_mode", "path": "docs/link", "mode": 0o600}, "whose mode is not set"),
        ({"do": "set_mode", "path": "a.txt", "mode": 0o600}, "has several names, whose mode would change"),
        ({"do": "make_folder", "path": "/".join(["x"] * 2001)}, "would need 2001 folders; at most 2000"),
        ({"do": "set_mode", "path": "a.txt", "mode": 0o10000}, "mode: .*less than or equal"),
        ({"do": "sudo", "path": "x"}, 'operation: do = "sudo": no such operation'),
        ({"path": "x"}, "operation: do = null: no such operation"),
        ({"do": "write"}, "operation: path: "),
        ({"do": "write", "path": "x", "sudo": True}, "operation: sudo: "),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_changes(root: Path, opened: Session, operation, rule: str):
    (root / "way-out").symlink_to(root.parent)
    (root / "proc").symlink_to("/proc")
    before = manifest(root)
    with pytest.raises(InputError, match=rule):
        opened.propose(operation)
    assert manifest(root) == before
    assert [record.kind for record in opened.journal.records()] == ["grant", "grant"]


def test_exactly_what_was_planned_is_done_or_nothing(root: Path, opened: Session):
    proposal = opened.propose({"do": "delete", "path": "docs", "recursive": True})
    with pytest.raises(InputError, match="was planned with digest"):
        opened.run(proposal.action, "0" * 64)
    (root / "docs/later.txt").write_text("somebody needs this")
    with pytest.raises(InputError, match="has changed since it was planned"):
        opened.run(proposal.action, proposal.plan.digest)
    assert (root / "docs/later.txt").exists()
    assert opened.journal.standing(proposal.action).state is S.PROPOSED


def test_what_was_run_is_not_run_again_and_can_still_be_redone(root: Path, opened: Session):
    proposal = opened.propose(OPERATIONS[2])
    opened.run(proposal.action, proposal.plan.digest)
    after = texts(root)
    with pytest.raises(InputError, match="is executed, so it cannot become executing"):
        opened.run(proposal.action, proposal.plan.digest)
    opened.undo(proposal.action)
    with pytest.raises(InputError, match="is undone, so it cannot become executing"):
        opened.run(proposal.action, proposal.plan.digest)
    opened.redo(proposal.action)
    assert texts(root) == after


def test_later_actions_on_the_same_are_shown_and_undone_all_or_none(root: Path, opened: Session):
    before = manifest(root)
    first = done(opened, do="make_folder", path="new")
    second = done(opened, do="write", path="new/x", content="1")
    apart = done(opened, do="write", path="b.txt", content="apart")
    third = done(opened, do="move", path="new/x", to="new/y")
    with pytest.raises(InputError, match=f"{third}, {second} came later"):
        opened.undo(first)
    assert opened.dependents_of(first) == [third, second]
    assert opened.undo(apart) == [apart]
    assert opened.undo(first, dependents=True) == [third, second, first]
    assert manifest(root) == before


def test_all_since_a_mark_is_undone_or_nothing(root: Path, opened: Session):
    done(opened, do="write", path="kept", content="1")
    opened.savepoint("before lunch")
    before = manifest(root)
    names = [
        done(opened, do="delete", path="docs", recursive=True),
        done(opened, do="write", path="docs", content="now a file"),
        done(opened, do="write", path="b.txt", content="2"),
    ]
    stat = (root / "b.txt").stat()
    (root / "b.txt").write_text("2")  # the same text, but another time: somebody was there
    with pytest.raises(InputError, match="nothing was taken back"):
        opened.undo_to("before lunch")
    assert (root / "docs").is_file()
    os.utime(root / "b.txt", ns=(0, stat.st_mtime_ns))
    assert opened.undo_to("before lunch") == names[::-1]
    assert manifest(root) == before
    with pytest.raises(InputError, match="there is none"):
        opened.undo_to("dinner")


def test_the_state_is_out_of_reach_of_actions(root: Path):
    with pytest.raises(InputError, match="must be outside of"):
        open_session(root, root / "state")
    with pytest.raises(InputError, match="must be a folder"):
        open_session(root / "a.txt", root.parent / "state")


# --- Death -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        {"do": "make_folder", "path": "x/y"},
        {"do": "move", "path": "b.txt", "to": "a.txt", "replace": True},
        {"do": "set_mode", "path": "b.txt", "mode": 0o600},
    ],
    ids=lambda each: each["do"],
)
def test_killed_at_every_event_the_tree_is_as_before_or_as_after(root: Path, operation: dict[str, Any]):
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
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 8


_BLOCK = [
    {"do": "write", "path": "new/a", "content": "x"},
    {"do": "delete", "path": "b.txt"},
    {"do": "write", "path": "a.txt", "content": "other"},
]


@SOME_OR_EACH
def test_killed_at_every_event_of_a_block_all_of_it_is_done_or_nothing(root: Path, every: int):
    before, ended = manifest(root), dict[int, bool]()
    for deadly in itertools.count(1, every):
        was_killed = dies_at(deadly, root, {"atomic": _BLOCK})
        with open_on(root) as session:
            is_done = (root / "a.txt").read_text() == "other"
            standing = [each.action for each in session.actions.standing_order()]
            assert len(standing) == (3 if is_done else 0)
            if is_done:
                session.undo(*standing)
            assert manifest(root) == before, deadly
            assert session.audit() == []
        ended[deadly] = is_done
        if not was_killed:
            break
    assert is_done
    assert all(number > 30 for number, was_done in ended.items() if was_done)


def in_a_block(session: Session, *operations: dict[str, Any], then: Callable[[], object] = lambda: None) -> list[str]:
    """Run operations in one block, and do something in it after them."""
    with session.atomic():
        actions = [done(session, **operation) for operation in operations]
        then()
        done(session, do="set_mode", path="b.txt", mode=0o600)
    return actions


def test_a_block_that_fails_is_undone_and_what_was_done_before_it_stays(root: Path, opened: Session):
    earlier = done(opened, do="write", path="earlier", content="")
    before = manifest(root)
    with pytest.raises(InputError, match="there is nothing"):  # no b.txt any more
        in_a_block(opened, *_BLOCK)
    assert manifest(root) == before

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_a_block(opened, _BLOCK[1], then=interrupted)
    assert manifest(root) == before
    (later,) = in_a_block(opened, _BLOCK[2])
    assert [each.action for each in opened.actions.standing_order()][:2] == [earlier, later]


def test_what_others_changed_in_a_block_stays_and_is_named(root: Path, opened: Session):
    with pytest.raises(InputError, match=r"what was done before it stands: .*somebody else has changed new"):
        in_a_block(opened, _BLOCK[0], _BLOCK[1], then=lambda: (root / "new/a").write_text("theirs"))
    assert [each.state for each in opened.journal.standings((S.EXECUTED,))] == [S.EXECUTED] * 2
    assert (root / "new/a").read_text() == "theirs"


def test_killed_at_every_event_of_undo_redo_and_commit_they_come_to_their_end(root: Path):
    operation = {"do": "move", "path": "b.txt", "to": "a.txt", "replace": True}
    before, manifest_before = manifest(root), manifest(root)
    with open_on(root) as session:
        action = done(session, **operation)
    after = manifest(root)
    for what, started, ended, wanted in (
        ("undo", S.EXECUTED, S.UNDONE, manifest_before),
        ("redo", S.UNDONE, S.REDONE, after),
    ):
        for deadly in itertools.count(1):
            was_killed = dies_at(deadly, root, {what: action})
            with open_on(root) as session:
                state = session.journal.standing(action).state
                assert state in (started, ended, S.REDONE)
                if state is ended:
                    assert facts_without_times(manifest(root)) == facts_without_times(wanted)
                    if was_killed:  # and once more from the beginning
                        (session.redo if what == "undo" else session.undo)(action)
                elif what == "undo":
                    assert facts_without_times(manifest(root)) == facts_without_times(after)
                else:
                    assert manifest(root) == before
            if not was_killed:
                break
        assert deadly > 5
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, root, {"commit": action}) if deadly < 50 else False
        with open_on(root) as session:
            if session.journal.standing(action).state is S.COMMITTED:
                assert not (root.parent / "state/stash" / action).exists()
                assert texts(root) == {path: (facts[0], facts[7]) for path, facts in after.items() if path != "."}
                break
        assert was_killed


def test_killed_at_every_event_of_an_undo_of_several_all_of_them_are_taken_back_or_none(root: Path):
    with open_on(root) as session:
        before = manifest(root)
        session.savepoint("start")
        actions = [done(session, do="write", path="a.txt", content="1"), done(session, do="delete", path="run.sh")]
        after = manifest(root)
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, root, {"undo_to": "start"})
        with open_on(root) as session:
            states = {session.journal.standing(each).state for each in actions}
            assert len(states) == 1, deadly
            if states == {S.UNDONE}:
                assert manifest(root) == before
                for action in actions:
                    session.redo(action)
            assert facts_without_times(manifest(root)) == facts_without_times(after)
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 12


def test_a_queued_action_runs_when_its_delay_has_passed_and_can_be_discarded(
    root: Path, opened: Session, monkeypatch: pytest.MonkeyPatch
):
    manager = opened.actions.managers["write"]
    plan = manager.plan
    monkeypatch.setattr(manager, "plan", lambda *args: replace(plan(*args), delay_s=60.0))
    before = manifest(root)
    kept, given_up = (opened.propose({"do": "write", "path": path, "content": "1"}) for path in ("a.txt", "b.txt"))
    opened.permissions.grant(Grant(resources=("files/**",), verbs=("*",), max_uses=2))
    for proposal in (kept, given_up):
        assert opened.run(proposal.action, proposal.plan.digest).state is S.APPROVED
    assert opened.run_queued() == []
    with pytest.raises(InputError, match="is queued for another"):
        opened.run(kept.action, kept.plan.digest)
    assert manifest(root) == before
    assert opened.discard(given_up.action).state is S.FAILED
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert [each.action for each in opened.run_queued()] == [kept.action]
    assert (root / "a.txt").read_text() == "1"
    assert (root / "b.txt").read_bytes() == b""
    with pytest.raises(InputError, match="only an action that has not begun can be discarded"):
        opened.discard(kept.action)


def test_what_others_changed_between_sessions_is_left_alone(root: Path):
    with open_on(root) as session:
        action = done(session, do="write", path="a.txt", content="ours")
        receipt = session.actions.receipt(action)
        undoing = session.actions.managers["write"].plan_undo(action, receipt, {}, Choice.REFUSE, lambda _: iter(()))
        session.journal.advance(action, S.UNDOING, undoing)
        (root / "a.txt").unlink()
        (root / "a.txt").write_text("theirs")
    with open_on(root) as session:
        assert session.recovered == [action]
        assert session.journal.standing(action).state is S.UNDO_FAILED  # nothing of it had happened
        assert (root / "a.txt").read_text() == "theirs"
        assert (root.parent / "state/stash" / action / "0").read_text() == "first\n"


# --- In time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "is_in_place"),
    [
        *((OPERATIONS[number], is_in_place) for number in (6, 17, 19) for is_in_place in (False, True)),
        (OPERATIONS[14], False),  # a link, which is not written in place
    ],
    ids=str,
)
def test_what_others_saved_right_before_a_step_goes_back_and_the_action_has_failed(
    root: Path, opened: Session, monkeypatch: pytest.MonkeyPatch, operation: dict[str, Any], is_in_place: bool
):
    path = root / ("docs/c.txt" if operation["path"] == "docs" else operation["path"])
    take, count = steps_module._take, itertools.count()

    def late(*given: Any) -> None:
        if next(count) == 0:  # after all was looked at
            place = path if is_in_place else root / ".saving"
            place.write_text("theirs")
            os.replace(place, path)
        take(*given)

    monkeypatch.setattr(steps_module, "_take", late)
    proposal = opened.propose(operation)
    with pytest.raises(InputError, match="somebody else has changed it meanwhile"):
        opened.run(proposal.action, proposal.plan.digest)
    assert opened.journal.standing(proposal.action).state is S.FAILED
    assert path.read_text() == "theirs"
    assert (root / "docs/deep/d.txt").read_text() == "d"
    assert not (root.parent / "state/stash" / proposal.action).exists()


@pytest.mark.parametrize(("verb", "state"), [("undo", S.UNDO_FAILED), ("redo", S.UNDONE)])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_undo_or_redo_whose_step_is_refused_has_not_happened_and_can_be_tried_again(
    root: Path, opened: Session, monkeypatch: pytest.MonkeyPatch, verb: str, state: ActionState, failing: int
):
    contents = [manifest(root)]
    action = done(opened, do="move", path="b.txt", to="run.sh", replace=True)
    contents.append(manifest(root))
    if verb == "redo":
        opened.undo(action)
        contents.reverse()
    take, count = steps_module._take, itertools.count()

    def refused(*given: Any) -> None:
        if next(count) == failing:
            raise InputError("Operation not permitted")
        take(*given)

    monkeypatch.setattr(steps_module, "_take", refused)
    with pytest.raises((NotUndone, NotRedone), match=r"stands as it was done|as it was after its undo"):
        getattr(opened, verb)(action)
    assert opened.journal.standing(action).state is state
    assert manifest(root) == contents[1]
    monkeypatch.undo()
    getattr(opened, verb)(action)
    assert facts_without_times(manifest(root)) == facts_without_times(contents[0])


def test_what_needs_something_that_was_not_redone_is_not_begun(root: Path, opened: Session):
    folder = done(opened, do="make_folder", path="e")
    file = done(opened, do="write", path="e/f", content="1")
    opened.undo(folder, dependents=True)
    with pytest.raises(InputError, match="'e/f' is not as it was before the action, or its folder is missing"):
        opened.redo(file)
    assert opened.journal.standing(file).state is S.UNDONE
    opened.redo(folder)
    opened.redo(file)
    assert (root / "e/f").read_text() == "1"


def test_a_link_that_would_lead_out_once_it_is_moved_is_not(root: Path, opened: Session):
    done(opened, do="make_link", path="docs/deep/l", target="../../b.txt")
    for path, to in (("docs/deep/l", "l"), ("docs/deep", "empty2")):
        with pytest.raises(InputError, match=r"'docs/deep/l': is a link to '../../b\.txt', which from '.*' would lead"):
            opened.propose({"do": "move", "path": path, "to": to})
    with pytest.raises(InputError, match="must be a relative path that stays in the folder"):
        opened.propose({"do": "make_link", "path": "docs/m", "target": "deep/../../../secret"})
    done(opened, do="move", path="docs/deep/l", to="docs/deep/m")
    done(opened, do="move", path="dangling", to="docs/dangling")  # it led out before


def test_what_must_not_be_read_is_not_moved_to_where_it_may_be(root: Path, opened: Session):
    opened.permissions.grant(Grant(resources=("files/docs/deep/**",), verbs=("read",), effect="forbid"))
    for path in ("docs/deep/d.txt", "docs/deep", "docs"):
        with pytest.raises(NotPermitted, match="read 'files/docs/"):
            opened.propose({"do": "move", "path": path, "to": "moved"})
    done(opened, do="move", path="docs/c.txt", to="moved")
