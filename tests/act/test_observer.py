"""What tools of other programs do becomes an action that an ordinary undo takes back, whatever dies meanwhile."""

from __future__ import annotations

import mmap
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.act import observer as observing
from autoclave.act import recording, shadow, watch
from autoclave.act.observer import Observer, ToolUse, observer_folder
from autoclave.core import HostError, InputError
from autoclave.core.scan import Scan
from autoclave.runtime.files import tree_digest
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.tree_digest import scan_of
from autoclave.runtime.interface import Choice
from autoclave.runtime.journal import Journal
from autoclave.runtime.opening import open_session
from autoclave.runtime.states import ActionState
from tests.act.tool_uses import use_tool
from tests.runtime.deaths import dies_within
from tests.runtime.trees import build_tree, manifest

BASH = ToolUse("1", "Bash", "make", "s")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_tree(tmp_path / "tree")


def known(root: Path) -> dict[str, Any]:
    """A manifest in which names of one file are known by each other: its inode is another one after an undo."""
    found = manifest(root)
    names: dict[int, list[str]] = {}
    for path, facts in found.items():
        names.setdefault(facts[4], []).append(path)
    return {path: (*facts[:4], tuple(names[facts[4]]), *facts[6:]) for path, facts in found.items()}


def without_time(found: dict[str, Any], paths: set[str]) -> dict[str, Any]:
    return {path: (*facts[:3], 0, *facts[4:]) if path in paths else facts for path, facts in found.items()}


def used(observer: Observer, tool: Callable[[], object], use: ToolUse = BASH) -> str:
    observer.before(use)
    tool()
    action, told = observer.after(use)
    assert told == []
    return action


def newly_done(observer: Observer, known: set[str]) -> list[str]:
    """The actions of the last tool use: two where inotify does not report all of it. Adds them to `known`."""
    observer.catch_up()
    done = [each.action for each in observer._journal.standings((ActionState.EXECUTED,)) if each.action not in known]
    known.update(done)
    return done


def states(root: Path) -> list[str]:
    with open_session(root) as session:
        return [each.state for each in session.journal.standings()]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 43))])
def test_undo_restores_the_tree_after_any_tool_use_and_none_is_missed(root: Path, seed: int):
    draw, history, done = random.Random(seed), list[tuple[list[str], dict[str, Any], set[str]]](), set[str]()
    with Observer(root) as observer:
        for _ in range(25):
            was = known(root)
            used(observer, lambda: use_tool(draw, root))
            actions, now = newly_done(observer, done), known(root)
            differing = {path for path in was.keys() | now.keys() if was.get(path) != now.get(path)}
            if not actions:  # names that came and went again leave their folder with another time
                assert all(os.path.isdir(root / path) for path in differing)
                assert without_time(was, differing) == without_time(now, differing)
            history.append((actions, was, differing))
    newer = set[str]()
    with open_session(root) as session:
        for actions, was, differing in reversed(history):
            if actions:
                assert set(session.undo(*actions)) == set(actions)
                assert without_time(known(root), newer) == without_time(was, newer)
            else:
                newer |= differing


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 32))])
def test_what_others_do_between_tool_uses_survives_the_undo(root: Path, seed: int):
    draw, done = random.Random(seed), set[str]()
    with Observer(root) as observer:
        for number in range(15):
            if number % 3:
                use_tool(draw, root)  # by others
            observer.before(BASH)
            was = known(root)
            use_tool(draw, root)
            differing = {path for path, facts in known(root).items() if was.get(path) != facts}
            assert observer.after(BASH)[1] == []
            if actions := newly_done(observer, done):
                with open_session(root) as session:
                    session.undo(*actions)
                differing = set()
            assert without_time(known(root), differing) == without_time(was, differing)


def test_what_inotify_does_not_report_is_recorded_after_the_answer(root: Path):
    (root / "mapped").write_bytes(b"old")
    (root / "docs/file").write_bytes(b"old")
    os.link(root / "docs/file", root.parent / "outside")
    with Observer(root) as observer, (root / "mapped").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for _ in range(2):  # the second one knows all folders
            observer.before(BASH)
            observer.after(BASH)
        observer.before(BASH)
        mapped[0:3] = b"new"
        (root.parent / "outside").write_bytes(b"new")
        (root / "run.sh").write_text("new")
        first, _ = observer.after(BASH)
        (root / "a.txt").write_text("by others")
        observer.catch_up()
    with open_session(root) as session:
        actions = [each.action for each in session.journal.standings()]
        paths = [{step["path"] for step in session.actions.receipt(action)["steps"]} for action in actions]
        assert set().union(*paths) == {"run.sh", "mapped", "docs/file"}
        assert actions[0] == first
        session.undo(*actions)
    restored = {name: (root / name).read_bytes() for name in ("mapped", "docs/file", "run.sh", "a.txt")}
    assert restored == {"mapped": b"old", "docs/file": b"old", "run.sh": b"#!/bin/sh\n", "a.txt": b"by others"}


def test_the_look_before_a_tool_use_is_left_out_if_nothing_has_changed(root: Path, monkeypatch: pytest.MonkeyPatch):
    looks = list[str]()
    monkeypatch.setattr(shadow, "scan_of", lambda folder, scope: looks.append(folder) or scan_of(folder, scope))
    with Observer(root) as observer:
        if not observer._watch.is_complete and not watch._is_local(observer._scope.descriptor):
            pytest.skip("the file system is not watched")
        used(observer, lambda: (root / "n").mkdir())  # nothing was watched before; what is new was not
        for change in (lambda: None, lambda: (root / "n/x").write_text("x"), lambda: (root / "n").rmdir()):
            observer.before(BASH)
            observer.after(BASH)
            observer.catch_up()
            looks.clear()
            observer.before(BASH)
            assert looks == []
            observer.after(BASH)
            observer.catch_up()
            (root / "n/x").unlink(missing_ok=True)
            change()
        observer.before(BASH)
        assert len(looks) == 2


def test_redo_needs_no_grant_and_restores_what_the_tool_left(root: Path):
    with Observer(root) as observer:
        first = known(root)
        action = used(observer, lambda: subprocess.run(["sh", "-c", "echo x >> a.txt; rm -r docs; mkdir n"], cwd=root))
        then = without_time(known(root), {"."})
    with open_session(root) as session:
        session.undo(action)
        assert known(root) == first
        session.redo(action)
        assert without_time(known(root), {"."}) == then
        session.undo(action)
        assert known(root) == first


def test_an_action_is_exact_and_names_the_tool(root: Path):
    with Observer(root) as observer:
        action = used(observer, lambda: (root / "new").write_text("x"))
        assert used(observer, lambda: (root / "new").read_text()) == ""
    with open_session(root) as session:
        proposed = session.journal.standing(action).proposed
        assert (proposed["guarantee"], proposed["by"], proposed["weight"]) == ("exact", "observer", 0)
        assert proposed["operation"] == {
            "do": "observed", "tool": "Bash", "about": "make", "session": "s", "is_finished": True,
        }  # fmt: skip
        assert session.difference(action)[3] == "+x"
        session.commit(action)
    assert not (root.parent / ".autoclave-tree" / "stash" / action).exists()


def test_it_can_neither_be_proposed_nor_is_offered_to_models(root: Path):
    with open_session(root) as session:
        assert "observed" not in session.operations
        with pytest.raises(InputError, match="is recorded by an observer, and cannot be proposed"):
            session.propose({"do": "observed", "tool": "Bash"})


def test_edits_of_the_user_between_tool_uses_are_not_undone(root: Path):
    with Observer(root) as observer:
        first = used(observer, lambda: (root / "a.txt").write_text("tool"))
        (root / "b.txt").write_text("user")
        second = used(observer, lambda: (root / "run.sh").write_text("tool"))
    with open_session(root) as session:
        session.undo(first, second)
    assert [(root / name).read_text() for name in ("a.txt", "b.txt", "run.sh")] == ["first\n", "user", "#!/bin/sh\n"]


def test_an_edit_of_the_user_to_what_the_tool_left_is_a_conflict(root: Path):
    with Observer(root) as observer:
        action = used(observer, lambda: (root / "a.txt").write_text("tool"))
        (root / "a.txt").write_text("user")
    with open_session(root) as session:
        with pytest.raises(InputError, match=r"somebody else has changed a\.txt"):
            session.undo(action)
        session.undo(action, on_conflict=Choice.SAVE_ASIDE)
    assert {path.read_text() for path in root.glob("a.txt*")} == {"first\n", "user"}


def test_a_later_tool_use_on_the_same_file_depends_on_the_earlier(root: Path):
    with Observer(root) as observer:
        first, second = (used(observer, lambda text=text: (root / "a.txt").write_text(text)) for text in ("1", "2"))
    with open_session(root) as session:
        assert session.dependents_of(first) == [second]
        session.undo(first, dependents=True)
    assert (root / "a.txt").read_text() == "first\n"


def test_a_use_without_an_end_is_recorded_by_the_next_hook(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(observing, "_MOST_USE_S", 0.0)
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "a.txt").write_text("tool")
    with Observer(root) as observer:
        observer.before(ToolUse("2", "Edit", "", "another session"))
        (root / "b.txt").write_text("tool")
        observer.after(ToolUse("2", "Edit", "", "another session"))
    with open_session(root) as session:
        found = [each.proposed["operation"] for each in session.journal.standings()]
        assert [(each["tool"], each["is_finished"]) for each in found] == [("Bash", False), ("Edit", True)]
        session.undo(*(each.action for each in session.journal.standings()))
    assert ((root / "a.txt").read_text(), (root / "b.txt").read_text()) == ("first\n", "")


def test_a_use_without_an_end_leaves_later_changes_of_the_same_files_exact(root: Path):
    before = known(root)
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "a.txt").write_text("first tool")
        used(observer, lambda: (root / "a.txt").write_text("second tool"), ToolUse("2", "Edit", "", "s"))
        observer.catch_up()
        actions = [each.action for each in observer._journal.standings((ActionState.EXECUTED,))]
    assert len(actions) == 2
    with open_session(root) as session:
        assert {each.proposed["guarantee"] for each in session.journal.standings()} == {"exact"}
        session.undo(*actions)
    assert known(root) == before


@pytest.mark.parametrize("whose", ["s", "another"])
def test_uses_at_the_same_time_share_what_was_done_while_both_were_open(root: Path, whose: str):
    other = ToolUse("2", "Edit", "b", whose)
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "1").write_text("")
        observer.before(other)
        (root / "2").write_text("")
        observer.after(BASH)
        (root / "3").write_text("")
        observer.after(other)
    with open_session(root) as session:
        told = [each.proposed["operation"]["tool"] for each in session.journal.standings()]
        assert told == ["Bash", "Bash, Edit", "Edit"]


def test_a_use_of_which_no_begin_is_known_is_told(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        observer.end("s")
        assert observer.after(BASH) == ("", ["not all covered: no begin of this use of 'Bash' is known"])


def test_a_folder_that_is_replaced_is_told(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        root.rename(root.parent / "moved")
        build_tree(root)
        (root / "a.txt").write_text("tool")
        with pytest.raises(HostError, match="is not the folder any more that was observed"):
            observer.after(BASH)
    with Observer(root) as observer:
        action, told = observer.after(BASH)
        assert told == []
    with open_session(root) as session:
        session.undo(action)
    assert (root / "a.txt").read_text() == "first\n"


def test_a_tree_with_paths_longer_than_the_system_takes_is_kept_and_comes_back(root: Path):
    def deep(place: Path, depth: int) -> None:
        descriptor = os.open(place, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d" * 200, dir_fd=descriptor)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.close(descriptor)

    (root / "top").mkdir()
    deep(root / "top", 24)
    with Observer(root) as observer:
        was, *_ = scan_of("", observer._scope)
        action = used(observer, lambda: subprocess.run(["rm", "-r", "top"], cwd=root, check=True))
        with open_session(root) as session:
            session.undo(action)
        now, *_ = scan_of("", observer._scope)
        assert now.keys() == was.keys()
        subprocess.run(["rm", "-r", "top"], cwd=root, check=True)


def test_what_cannot_be_kept_is_left_out_of_the_action(root: Path, monkeypatch: pytest.MonkeyPatch):
    with Observer(root) as observer:
        observer.before(BASH)
        subprocess.run(["sh", "-c", "rm -r docs; echo tool > run.sh; echo tool > b.txt"], cwd=root, check=True)
        with monkeypatch.context() as denied:
            denied.setattr(os, "mknod", lambda *_, **__: (_ for _ in ()).throw(PermissionError(1, "not permitted")))
            action, told = observer.after(BASH)
        assert told == ["not covered: what was at 'docs' cannot be kept"]
        assert used(observer, lambda: (root / "b.txt").write_text("again"))
    with open_session(root) as session:
        assert session.journal.standing(action).proposed["guarantee"] == "none"
        session.undo(action, dependents=True)
    assert ((root / "run.sh").read_text(), (root / "b.txt").read_text()) == ("#!/bin/sh\n", "")


def test_an_edit_of_the_user_by_a_name_outside_is_not_the_tools(root: Path):
    os.link(root / "run.sh", root.parent / "outside")
    with Observer(root) as observer:
        for _ in range(2):  # the second one knows all folders
            used(observer, lambda: None)
            observer.catch_up()
        (root.parent / "outside").write_text("user")
        assert used(observer, lambda: None) == ""
    assert states(root) == []


def test_a_session_that_ends_ends_its_uses(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "new").write_text("")
        observer.end("s")
        (root / "by the user").write_text("")
        observer.end("s")
    assert states(root) == ["executed"]


def test_names_of_one_file_are_one_file_again(root: Path):
    (root / "other").mkdir()
    os.link(root / "a.txt", root / "other/c")
    with Observer(root) as observer:
        was = known(root)
        action = used(observer, lambda: (root / "other").rename(root / "moved"))
    with open_session(root) as session:
        session.undo(action)
    assert known(root) == was


def test_a_file_with_a_name_outside_is_restored_without_that_link(root: Path):
    os.link(root / "b.txt", root.parent / "outside")
    with Observer(root) as observer:
        action = used(observer, lambda: (root / "b.txt").write_text("tool"))
    with open_session(root) as session:
        assert session.journal.standing(action).proposed["guarantee"] == "equivalent"
        session.undo(action)
    assert ((root / "b.txt").read_text(), (root.parent / "outside").read_text()) == ("", "tool")


def test_a_lost_pre_image_is_reported_and_has_no_guarantee(root: Path):
    with Observer(root) as observer:
        observer.before(BASH)
        for copy in (observer_folder(root.parent / ".autoclave-tree") / "copies").iterdir():
            copy.unlink()
        (root / "run.sh").write_text("tool")
        (root / "new").write_text("tool")
        action, told = observer.after(BASH)
    assert told == ["not covered: 'run.sh' has no pre-image"]
    with open_session(root) as session:
        assert session.journal.standing(action).proposed["guarantee"] == "none"
        session.undo(action)
    assert not (root / "new").exists()


def test_what_was_in_a_folder_that_could_not_be_listed_is_not_taken_for_new(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    def blind(folder: str, scope: Scope) -> Scan:
        found = scan_of(folder, scope)
        seen = {path: each for path, each in found.folders.items() if not path.startswith("docs")}
        return found._replace(folders=seen, unlisted=["docs"])

    with Observer(root) as observer:
        with monkeypatch.context() as unlistable:
            unlistable.setattr(shadow, "scan_of", blind)
            observer.before(BASH)
        (root / "new").write_text("tool")
        action, told = observer.after(BASH)
    assert told == ["not covered: 'docs' could not be listed before"]
    with open_session(root) as session:
        assert session.journal.standing(action).proposed["guarantee"] == "none"
        session.undo(action)
    assert ((root / "docs/c.txt").exists(), (root / "new").exists()) == (True, False)


def test_a_tool_use_during_the_first_copy_is_reported_as_not_covered(root: Path):
    with Observer(root) as observer, pytest.raises(HostError, match="the first copy of the folder was not complete"):
        observer.after(BASH)


def test_a_second_observer_of_a_folder_is_refused(root: Path):
    with Observer(root), pytest.raises(InputError, match="another process observes this folder"):
        Observer(root)


def test_a_look_in_python_finds_what_the_compiled_one_finds(root: Path, monkeypatch: pytest.MonkeyPatch):
    with Scope(root) as scope:
        found = scan_of("", scope)
        monkeypatch.setattr(tree_digest, "compiled", None)
        in_python = scan_of("", scope)
    assert found.linked == ["", "docs"]
    assert (in_python, in_python.digest()) == (found, found.digest())


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_an_observer_that_is_killed_at_any_moment_loses_nothing(tmp_path: Path, every: int):
    deadly, is_alive_yet = 1, True
    while is_alive_yet:
        root = build_tree(tmp_path / f"{deadly}" / "tree")
        with Observer(root) as observer:
            observer.before(BASH)
            was = known(root)
        subprocess.run(["sh", "-c", "echo x >> a.txt; rm -r docs; mkdir n; chmod 700 empty"], cwd=root, check=True)

        def work(dying: Callable[..., Any], root: Path = root) -> None:
            for owner, name in (
                (Journal, "_add"),
                (Journal, "seal"),
                (shadow.Shadow, "_write"),
                (shadow.Shadow, "keep_note"),
            ):
                setattr(owner, name, dying(getattr(owner, name)))
            for owner, name in ((recording, "_set_facts"), (observing, "build"), (observing, "receipt_of")):
                setattr(owner, name, dying(getattr(owner, name)))
            with Observer(root) as observer:
                observer.after(BASH)

        is_alive_yet = dies_within(deadly, work)
        with Observer(root) as observer:
            observer.before(ToolUse("2", "Edit", "", "next"))
            observer.after(ToolUse("2", "Edit", "", "next"))
        with open_session(root) as session:
            standing = [each.action for each in session.journal.standings() if each.state == "executed"]
            assert len(standing) == 1
            session.undo(*standing)
            assert session.audit() == []
        assert known(root) == was
        deadly += every


def test_a_full_disk_is_reported_and_the_next_hook_records_it(root: Path, monkeypatch: pytest.MonkeyPatch):
    with Observer(root) as observer:
        observer.before(BASH)
        (root / "a.txt").write_text("tool")
        with monkeypatch.context() as full:
            full.setattr(observing, "build", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(HostError, match="No space left on device; it was not journalled"):
                observer.after(BASH)
        observer.after(BASH)
    assert states(root) == ["failed", "executed"]


def test_holes_of_a_deleted_file_do_not_count_for_the_quota(root: Path):
    with open(root / "sparse", "wb") as file:
        file.truncate(64 << 20)
    with Observer(root) as observer:
        action = used(observer, (root / "sparse").unlink)
    with open_session(root) as session:
        assert session.actions.receipt(action)["kept_bytes"] < 1 << 20
        session.undo(action)
    assert (root / "sparse").stat().st_size == 64 << 20
