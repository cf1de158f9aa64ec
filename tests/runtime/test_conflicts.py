"""What somebody else changed since is skipped, taken back all the same, or saved aside, and never lost."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime import actions
from autoclave.runtime.files import scope, steps
from autoclave.runtime.files.difference import difference_of
from autoclave.runtime.interface import Choice, NotUndone
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.states import ActionState
from tests.runtime.trees import done, manifest, open_on

S = ActionState

CASES: list[tuple[dict[str, Any], str, dict[str, str | None]]] = [
    ({"do": "write", "path": "a.txt", "content": "ours"}, "echo theirs > a.txt", {"a.txt": "first\n"}),
    ({"do": "write", "path": "a.txt", "content": "ours"}, "rm a.txt", {"a.txt": "first\n"}),
    ({"do": "write", "path": "new", "content": "ours"}, "echo theirs > new", {"new": None}),
    ({"do": "write", "path": "new", "content": "ours"}, "rm new; mkdir new; echo x > new/y", {"new": None}),
    ({"do": "write", "path": "new", "content": "ours"}, "rm new", {"new": None}),
    ({"do": "delete", "path": "b.txt"}, "echo theirs > b.txt", {"b.txt": ""}),
    ({"do": "delete", "path": "docs", "recursive": True}, "mkdir docs; echo x > docs/c.txt", {"docs/deep/d.txt": "d"}),
    ({"do": "make_folder", "path": "x/y"}, "echo theirs > x/y/z", {"x": None}),
    ({"do": "move", "path": "a.txt", "to": "e"}, "echo theirs > a.txt", {"a.txt": "first\n", "e": None}),
    ({"do": "set_mode", "path": "run.sh", "mode": 0o600}, "chmod 700 run.sh", {"run.sh": "#!/bin/sh\n"}),
]


@pytest.mark.parametrize("choice", [Choice.SKIP, Choice.FORCE, Choice.SAVE_ASIDE])
@pytest.mark.parametrize(("operation", "theirs", "before"), CASES)
def test_a_conflict_is_settled_as_chosen_and_can_be_redone(root: Path, operation, theirs, before, choice: Choice):
    with open_on(root) as session:
        action = done(session, **operation)
        os.system(f"cd {root} && {theirs}")
        found = contents(root)
        with pytest.raises(InputError, match="somebody else has changed"):
            session.undo(action)
        assert contents(root) == found
        if choice is Choice.SKIP:
            with pytest.raises(NotUndone, match="nothing of it is left to take back"):
                session.undo(action, on_conflict=choice)
            assert contents(root) == found
            assert session.journal.standing(action).state is S.EXECUTED
            return
        session.undo(action, on_conflict=choice)
        for path, content in before.items():
            assert contents(root).get(path) == content
        if choice is Choice.SAVE_ASIDE:
            kept = [content for content in found.values() if content not in contents(root).values()]
            assert kept == [] or operation["do"] == "set_mode"
        session.redo(action)
        assert contents(root) == found
        session.undo(action, on_conflict=choice)
        assert session.audit() == []


def test_what_was_kept_and_changed_through_another_name_is_a_conflict(root: Path):
    with open_on(root) as session:
        action = done(session, do="delete", path="docs/same as a")
        os.chmod(root / "a.txt", 0o600)
        with pytest.raises(InputError, match="somebody else has changed docs/same as a"):
            session.undo(action)
        assert not (root / "docs/same as a").exists()
        session.undo(action, on_conflict=Choice.FORCE)
        assert (root / "docs/same as a").stat().st_mode == (root / "a.txt").stat().st_mode
        session.redo(action)
        os.chmod(root / "a.txt", 0o644)
        session.undo(action)
        assert (root / "docs/same as a").samefile(root / "a.txt")


def test_a_change_that_leaves_size_and_time_as_they_were_is_a_conflict(root: Path):
    with open_on(root) as session:
        action = done(session, do="move", path="docs", to="moved")
        place = root / "moved/deep/d.txt"
        about = place.stat()
        place.write_text("D")
        os.utime(place, ns=(about.st_atime_ns, about.st_mtime_ns))
        assert (place.stat().st_size, place.stat().st_mtime_ns) == (about.st_size, about.st_mtime_ns)
        with pytest.raises(InputError, match="somebody else has changed moved"):
            session.undo(action)
        assert place.read_text() == "D"


def test_a_folder_is_deleted_and_comes_back_without_a_file_with_one_name_being_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    (root / "docs/same as a").unlink()
    before = manifest(root)
    with open_on(root) as session:
        monkeypatch.setattr(scope, "digest_of", lambda _: pytest.fail("a file was read"))
        action = done(session, do="delete", path="docs", recursive=True)
        monkeypatch.undo()
        session.undo(action)
    assert manifest(root) == before


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text(errors="replace")
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != "holes"
    }


def test_each_path_has_a_choice_of_its_own(root: Path):
    with open_on(root) as session:
        first = done(session, do="write", path="a.txt", content="ours")
        second = done(session, do="write", path="a.txt", content="ours too")
        third = done(session, do="write", path="b.txt", content="ours")
        (root / "a.txt").write_text("theirs")
        (root / "b.txt").write_text("theirs as well")
        session.savepoint("now")
        with pytest.raises(InputError, match=r"changed b\.txt since"):
            session.undo(third, choices={"a.txt": Choice.FORCE})
        with pytest.raises(NotUndone, match=r"others have changed 'b\.txt'"):
            session.undo(third, choices={"b.txt": Choice.SKIP})
        assert (root / "b.txt").read_text() == "theirs as well"
        session.undo(first, dependents=True, choices={"a.txt": Choice.SAVE_ASIDE})
        assert (root / "a.txt").read_text() == "first\n"
        assert (root / f"a.txt.kept-{second}").read_text() == "theirs"
        assert session.undo_to("now") == []


def test_of_several_those_of_which_nothing_is_left_stand_and_the_others_go_back(root: Path):
    with open_on(root) as session:
        session.savepoint("start")
        one = done(session, do="write", path="b.txt", content="ours")
        other = done(session, do="write", path="new", content="ours")
        (root / "b.txt").write_text("theirs")
        assert session.undo_to("start", on_conflict=Choice.SKIP) == [other]
        assert session.journal.standing(one).state is S.EXECUTED
        assert (root / "b.txt").read_text() == "theirs"
        assert not (root / "new").exists()
        again = done(session, do="append", path="b.txt", content="ours")
        (root / "b.txt").write_text("theirs again")
        with pytest.raises(NotUndone, match=f"{again}, {one}: others have changed all of it"):
            session.undo_to("start", on_conflict=Choice.SKIP)
    with open_on(root) as session:
        assert session.recovered == []


def test_where_the_folder_is_gone_an_undo_by_force_has_failed_and_can_be_tried_again(root: Path):
    with open_on(root) as session:
        action = done(session, do="write", path="docs/c.txt", content="ours")
        shutil.rmtree(root / "docs")
        for choice in (Choice.FORCE, Choice.SAVE_ASIDE):
            with pytest.raises(NotUndone, match="it stands as it was done"):
                session.undo(action, on_conflict=choice)
            assert session.journal.standing(action).state is S.UNDO_FAILED
        (root / "docs").mkdir()
        session.undo(action, on_conflict=Choice.FORCE)
        assert (root / "docs/c.txt").read_text() == "c" * 10_000


def test_an_action_whose_undo_failed_keeps_its_place(root: Path):
    with open_on(root) as session:
        first = done(session, do="write", path="docs/c.txt", content="ours")
        session.savepoint("between")
        second = done(session, do="write", path="a.txt", content="ours")
        shutil.move(root / "docs", root.parent / "docs")
        with pytest.raises(NotUndone, match="it stands as it was done"):
            session.undo(first, on_conflict=Choice.FORCE)
        shutil.move(root.parent / "docs", root / "docs")
        assert [each.action for each in session.actions.standing_order()] == [first, second]
        assert session.actions.groups() == [[first], [second]]
        assert session.undo_to("between") == [second]
        third = done(session, do="write", path="docs/c.txt", content="ours as well")
        assert session.dependents_of(first) == [third]
        assert session.undo(first, dependents=True) == [third, first]
        assert session.audit() == []


def test_a_person_settles_what_is_in_doubt(root: Path):
    with open_on(root) as session:
        action = done(session, do="move", path="b.txt", to="a.txt", replace=True)
        undoing = session.actions.managers["move"].plan_undo(
            action, session.actions.receipt(action), {}, Choice.REFUSE, lambda _: iter(())
        )
        session.journal.advance(action, S.UNDOING, undoing)
        (root / "a.txt").rename(root / "b.txt")  # so far it came
        (root / "a.txt").write_text("theirs")
    with open_on(root) as session:
        assert session.journal.standing(action).state is S.UNDO_IN_DOUBT
        with pytest.raises(InputError, match="cannot become executed"):
            session.resolve(action, S.EXECUTED, "no")
        session.resolve(action, S.UNDO_FAILED, "looked at it")
        assert session.undo(action, on_conflict=Choice.FORCE) == [action]
        assert (root / "a.txt").read_text() == "first\n"
        with pytest.raises(InputError, match="only an action in doubt can be resolved"):
            session.resolve(action, S.UNDONE, "again")


def test_an_interrupted_redo_that_others_disturbed_is_settled_as_it_is(root: Path):
    with open_on(root) as session:
        action = done(session, do="move", path="b.txt", to="a.txt", replace=True)
        session.undo(action)
        redoing = session.actions.managers["move"].plan_redo(action, session.journal.standing(action).body)
        session.journal.advance(action, S.REDOING, redoing)
        (root / "a.txt").rename(root.parent / "state/stash" / action / "0")  # so far it came
        (root / "a.txt").write_text("theirs")
    with open_on(root) as session:
        assert session.journal.standing(action).state is S.IN_DOUBT
        session.resolve(action, S.EXECUTED, "theirs is what was meant")
        (root.parent / "state/stash" / action / "0").unlink()
        with pytest.raises(InputError, match=r"what it replaced at 'a\.txt' is not kept"):
            session.undo(action, on_conflict=Choice.FORCE)
        session.commit(action)
        assert (root / "a.txt").read_text() == "theirs"


def test_what_stands_is_kept_whatever_the_quota_and_the_rest_goes_the_oldest_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(actions, "_MOST_KEPT", 25_000)
    with open_on(root) as session:
        standing = done(session, do="delete", path="docs", recursive=True)  # some 10 kB
        undone = [done(session, do="write", path=f"n{number}", content="x") for number in range(3)]
        large = done(session, do="write", path="large", content="y" * 12_000)
        deleted = done(session, do="delete", path="large")
        session.undo(deleted)
        for each in undone:
            session.undo(each)
        done(session, do="write", path="large2", content="z" * 9_000)
        done(session, do="delete", path="large2")
        done(session, do="write", path="more", content="")
        assert not (root.parent / "state/stash" / deleted).exists()
        with pytest.raises(InputError, match="no longer kept"):
            session.redo(deleted)
        assert "forgotten" in [record.kind for record in session.journal.records(deleted)]
        done(session, do="write", path="third", content="z" * 9_000)
        done(session, do="delete", path="third")
        with pytest.raises(HostError, match="more than the quota of 25000"):
            done(session, do="write", path="fourth", content="")
        session.undo(standing)
        assert (root / "docs/c.txt").read_text() == "c" * 10_000
        assert session.journal.standing(large).state is S.EXECUTED


def test_holes_in_files_do_not_count_towards_the_quota(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "_MOST_KEPT", 25_000)
    (root / "sparse").mkdir()
    for name in ("big", "sparse/big"):
        (root / name).touch()
        os.truncate(root / name, 10 << 20)
    os.link(root / "sparse/big", root / "sparse/same")
    with open_on(root) as session:
        file, folder = done(session, do="delete", path="big"), done(session, do="delete", path="sparse", recursive=True)
        done(session, do="write", path="a.txt", content="1")
        assert [session.journal.standing(each).kept_bytes for each in (file, folder)] == [0, 0]
        session.undo(folder)
    assert (root / "sparse/big").stat().st_size == 10 << 20


def test_what_is_about_to_be_run_is_not_forgotten_for_want_of_room(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "_MOST_KEPT", 1000)
    with open_on(root) as session:
        proposal = session.propose({"do": "run", "command": ["sh", "-c", "seq 1000 > new"]})
        with pytest.raises(HostError, match="more than the quota"):
            session.run(proposal.action, proposal.plan.digest)
        assert session.journal.standing(proposal.action).state is ActionState.PROPOSED


def test_one_session_works_on_a_folder_and_what_is_above_and_below_it(root: Path, tmp_path: Path):
    with open_on(root):
        for other in (root, root / "docs/deep", root.parent):
            with pytest.raises(InputError, match="another session works on"):
                open_session(other, tmp_path.parent / f"{tmp_path.name}-other")
    with open_session(root / "docs/deep"), open_session(root / "empty"):
        pass
    with open_on(root):
        pass


def test_a_session_can_wait_for_another_one_to_end(root: Path):
    other = open_on(root)
    with pytest.raises(InputError, match="another session works on"):
        open_on(root, wait_s=0.05)
    threading.Timer(0.05, other.close).start()
    with open_on(root, wait_s=60.0):
        pass


def test_a_difference_reads_like_a_patch(root: Path):
    with open_on(root) as session:
        proposal = session.propose({"do": "append", "path": "a.txt", "content": "second\n"})
        expected = ["--- a/a.txt", "+++ b/a.txt", "@@ -1 +1,2 @@", " first", "+second"]
        assert session.difference(proposal.action) == expected
        session.run(proposal.action, proposal.plan.digest)
        assert session.difference(proposal.action) == expected
        session.undo(proposal.action)
        assert session.difference(proposal.action) == expected
        other = done(session, do="delete", path="docs", recursive=True)
        (line,) = session.difference(other)
        assert line.startswith("deleted 'docs': a folder with 'c.txt', 'deep'")
        moved = done(session, do="move", path="b.txt", to="c")
        assert session.difference(moved) == ["renamed 'b.txt' to 'c'"]
        mode = done(session, do="set_mode", path="run.sh", mode=0o600)
        assert session.difference(mode) == ["mode of 'run.sh': 4750 -> 600"]
        session.commit(mode)
        with pytest.raises(InputError, match="is committed"):
            session.difference(mode)


def test_after_much_text_the_rest_of_a_difference_is_sizes(root: Path):
    paths = [f"long{number}" for number in range(8)]
    for path in paths:
        (root / path).write_text("x" * (1 << 20))
    with scope.Scope(root) as tree:
        lines = list(difference_of([steps.Step("put", path) for path in paths], tree, None, is_done=True))
    assert lines[3:5] == [f"+{'x' * (1 << 20)}", "\\ no line break at the end"]
    assert lines[-1] == f"created 'long7': {1 << 20} bytes"


def test_a_difference_of_many_lines_is_told_by_their_number(root: Path):
    (root / "many").write_text("\n" * 500_000)
    with open_on(root) as session:
        action = done(session, do="write", path="many", content="one\n")
        assert session.difference(action) == ["changed 'many': 500000 lines of text -> 1 lines of text"]


def test_a_full_disk_at_any_write_leaves_before_or_after(root: Path, monkeypatch: pytest.MonkeyPatch):
    for place in FAILING:
        before = manifest(root)
        for number in range(1, 200):
            with open_on(root) as session:
                calls = _fail_at(monkeypatch, *place, number)
                try:
                    action = done(session, do="move", path="b.txt", to="a.txt", replace=True)
                except OSError:
                    action = ""
                monkeypatch.undo()
            with open_on(root) as session:
                last = session.journal.standings()[-1] if session.journal.standings() else None
                if last is not None and last.state is S.EXECUTED:
                    session.undo(last.action)
                assert manifest(root) == before, (place, number)
                assert session.audit() == []
            if calls() < number:
                assert action
                break
        else:
            raise AssertionError("the fault never stopped firing")


FAILING: list[tuple[Any, str]] = [(os, "fsync"), (os, "mkdir"), (steps, "_rename"), (Journal, "_add")]


def _fail_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int):
    """Have the so-manieth call fail for want of room."""
    call, count = getattr(owner, name), [0]

    def failing(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            raise HostError(28, "No space left on device")
        return call(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return lambda: count[0]
