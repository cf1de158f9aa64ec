"""What actions replaced can be kept in a Git repository of our own; what is restored from it is as it was."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import DataError, HostError, InputError
from autoclave.runtime.files import git_store
from autoclave.runtime.files.git_store import GitStore
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from tests.runtime.trees import build_tree, done, drawn, granted, manifest

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def git_session(root: Path, **others: Any) -> Session:
    return granted(open_session(root, root.parent / "state", versioning="git", **others))


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", root.parent / "state/history.git", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def but_inodes(root: Path) -> dict[str, Any]:
    """All but inode numbers: what comes out of Git is another file of the same name and content."""
    return {path: (*facts[:4], *facts[5:]) for path, facts in manifest(root).items()}


def in_stash(root: Path, action: str) -> list[str]:
    return sorted(os.listdir(root.parent / "state/stash" / action))


@pytest.mark.parametrize(
    "operation",
    [
        {"do": "write", "path": "a name", "content": "other"},
        {"do": "write", "path": "odd \udcff\nname", "content": "other"},
        {"do": "delete", "path": "run.sh"},
        {"do": "delete", "path": "dangling"},
        {"do": "delete", "path": "empty"},
        {"do": "delete", "path": "docs/deep", "recursive": True},
        {"do": "move", "path": "run.sh", "to": "b.txt", "replace": True},
        {"do": "run", "command": ["sh", "-c", "rm -r docs/deep; echo x >> docs/c.txt; mkdir new"]},
    ],
)
def test_what_is_taken_back_out_of_git_is_as_it_was(root: Path, operation: dict[str, Any]):
    (root / "a name").write_text("one\n")
    with git_session(root) as session:
        before = but_inodes(root)
        action = done(session, **operation)
        after = but_inodes(root)
        assert in_stash(root, action) == []
        for _ in range(2):
            session.undo(action)
            assert but_inodes(root) == before
            session.redo(action)
            assert but_inodes(root).keys() == after.keys()
            assert in_stash(root, action) == []
        assert session.audit() == []


def test_git_itself_tells_what_an_action_did(root: Path):
    with git_session(root) as session:
        action = done(session, do="write", path="b.txt", content="new\n")
        other = done(session, do="write", path="run.sh", content="#!/bin/bash\n")
        ref = f"refs/actions/{action}"
        assert git(root, "diff", f"{ref}^", ref, "--", "tree").endswith("@@ -0,0 +1 @@\n+new\n")
        assert git(root, "show", f"refs/actions/{other}^:tree/run.sh") == "#!/bin/sh\n"
        assert git(root, "fsck", "--strict", "--no-dangling") == ""
        assert "-#!/bin/sh" in session.difference(other)


def test_what_git_cannot_keep_whole_stays_in_the_stash(root: Path):
    with git_session(root) as session:
        before = manifest(root)
        actions = [
            done(session, do="delete", path=path, recursive=True) for path in ("docs/fifo", "docs/same as a", "holes")
        ]
        for action in actions:
            assert in_stash(root, action) == ["0"]
        for action in reversed(actions):
            session.undo(action)
        assert manifest(root) == before


def test_a_repository_in_the_folder_is_content_and_its_settings_are_not_heeded(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    with git_session(root) as session:
        monkeypatch.delenv("GIT_DIR")
        monkeypatch.delenv("GIT_INDEX_FILE")
        script = (
            "git init -q -b main . && git config core.autocrlf true && git config user.email a@b"
            " && git config user.name a && printf '* text=auto\\n*.dat filter=lfs\\n' > .gitattributes"
            " && printf 'a\\r\\nb\\n' > mixed.txt"
            " && printf x > y.dat && echo ignored > .gitignore && echo z > ignored"
            " && git add a.txt && git commit -qm one"
            " && echo staged > a.txt && git add a.txt && echo stashed > b.txt && git stash -q && git init -q nested"
            " && echo '#!/bin/sh\ntouch RAN' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit"
        )
        subprocess.run(["sh", "-c", script], cwd=root, check=True, env={**os.environ, "HOME": "/nonexistent"})
        session.permissions.grant(Grant(resources=("files/nested/**", "files/nested/.git/**"), verbs=("*",)))
        before = but_inodes(root)
        acts = [
            {"do": "write", "path": "mixed.txt", "content": "other\n"},
            {"do": "delete", "path": "y.dat"},
            {"do": "delete", "path": "ignored"},
            {"do": "delete", "path": "nested", "recursive": True},
        ]
        actions = [done(session, **act) for act in acts]
        assert {path: facts for path, facts in but_inodes(root).items() if path.startswith(".git")} == {
            path: facts for path, facts in before.items() if path.startswith(".git")
        }
        actions.append(done(session, do="delete", path=".git", recursive=True))
        assert in_stash(root, actions[-1]) == []
        for action in reversed(actions):
            session.undo(action)
        assert but_inodes(root) == before
        assert not (root / "RAN").exists()


def test_files_of_a_large_tree_are_lfs_objects(root: Path):
    content = "x" * 5000
    (root / "large").write_text(content)
    (root / "small").write_text("small")
    with git_session(root, lfs_above=4000) as session:
        before = but_inodes(root)
        actions = [done(session, do="write", path=path, content="y" * 3000) for path in ("large", "small")]
        pointer = git(root, "show", f"refs/actions/{actions[0]}^:tree/large")
        assert pointer.startswith("version https://git-lfs.github.com/spec/v1\noid sha256:")
        assert pointer.endswith("\nsize 5000\n")
        assert "filter=lfs" in git(root, "show", f"refs/actions/{actions[0]}^:.gitattributes")
        oid = pointer.split("sha256:")[1].split()[0]
        kept = root.parent / "state/history.git/lfs/objects" / oid[:2] / oid[2:4] / oid
        assert kept.read_text() == content
        assert git(root, "show", f"refs/actions/{actions[1]}^:tree/small") == "small"
        for action in actions:
            session.undo(action)
        assert but_inodes(root) == before
        for action in actions:
            session.redo(action)
        session.commit(actions[0])
        assert not kept.exists()
        assert list(kept.parents[2].rglob("*"))  # what the other action left, which still stands
        session.commit(actions[1])
        assert not [path for path in kept.parents[2].rglob("*") if path.is_file()]
        assert git(root, "for-each-ref") == ""


def test_a_tree_below_the_threshold_has_no_lfs_objects(root: Path):
    (root / "large").write_text("x" * 5000)
    with git_session(root) as session:
        done(session, do="delete", path="large")
    assert not (root.parent / "state/history.git/lfs").exists()


def test_what_git_lost_is_said_and_nothing_is_done(root: Path):
    with git_session(root, lfs_above=0) as session:
        action = done(session, do="write", path="docs/c.txt", content="new")
        shutil.rmtree(root.parent / "state/history.git/lfs")
        found = manifest(root)
        with pytest.raises(DataError, match=r"is gone, which had the content of 'docs/c\.txt'"):
            session.undo(action)
        assert manifest(root) == found
        assert session.journal.standing(action).state == "executed"


def test_a_git_that_fails_leaves_all_in_the_stash(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with git_session(root) as session:
        before = manifest(root)
        false = tmp_path / "bin/git"
        false.parent.mkdir()
        false.write_text("#!/bin/sh\necho no room >&2\nexit 128\n")
        false.chmod(0o755)
        monkeypatch.setenv("PATH", f"{false.parent}:{os.environ['PATH']}")
        proposal = session.propose({"do": "write", "path": "b.txt", "content": "new"})
        assert session.run(proposal.action, proposal.plan.digest).state == "executed"
        monkeypatch.undo()
        session.undo(proposal.action)
        assert manifest(root) == before
        monkeypatch.setenv("PATH", f"{false.parent}:{os.environ['PATH']}")
        assert session.redo(proposal.action).state == "redone"
        reasons = [each.body["reason"] for each in session.journal.records(proposal.action) if each.kind == "not_kept"]
        assert len(reasons) == 2
        assert "no room" in reasons[0]
        assert in_stash(root, proposal.action) == ["0"]


def sizes(root: Path) -> int:
    return sum(path.stat().st_size for path in (root.parent / "state/history.git/objects").rglob("*") if path.is_file())


def test_what_was_committed_is_no_longer_in_git(root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "large").write_bytes(random.Random(1).randbytes(3_000_000))
    with git_session(root) as session:
        kept = done(session, do="write", path="run.sh", content="other")
        names = [done(session, do="delete", path=path) for path in ("docs/c.txt", "large")]
        blob = git(root, "rev-parse", f"refs/actions/{names[0]}^:tree/docs/c.txt").strip()
        assert sizes(root) > 3_000_000
        for name in names:
            session.commit(name)
        with pytest.raises(subprocess.CalledProcessError):
            git(root, "cat-file", "-p", blob)
        assert sizes(root) < 50_000
        last = (
            done(session, do="delete", path="docs/c.txt")
            if (root / "docs/c.txt").exists()
            else done(session, do="write", path="docs/c.txt", content="y" * 9_000)
        )
        over = done(session, do="delete", path="docs/c.txt")
        monkeypatch.setattr(git_store, "_SWEPT_AT_ONCE", -1)  # as if there were a lot to write again
        session.commit(last)
        session.commit(over)
        assert git(root, "cat-file", "--batch-all-objects", "--batch-check").count("9000") == 1
    with git_session(root) as session:
        assert git(root, "cat-file", "--batch-all-objects", "--batch-check").count("9000") == 0
        session.undo(kept)
        assert (root / "run.sh").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize(
    "operation",
    [{"do": "set_mode", "path": "full", "mode": 0o700}, {"do": "move", "path": "full", "to": "moved"}],
    ids=str,
)
def test_what_only_changed_its_name_or_mode_is_not_written_to_git(root: Path, operation: dict[str, Any]):
    (root / "full").mkdir()
    (root / "full/large").write_bytes(random.Random(1).randbytes(1_000_000))
    with git_session(root) as session:
        before = but_inodes(root)
        action = done(session, **operation)
        assert sizes(root) < 50_000
        session.undo(action)
        assert but_inodes(root) == before


@pytest.mark.parametrize("damage", [b"", b"x", b"y" * 10_000])
def test_an_object_that_is_damaged_is_not_brought_back(root: Path, damage: bytes):
    with git_session(root, lfs_above=0) as session:
        action = done(session, do="write", path="docs/c.txt", content="new")
        for path in (root.parent / "state/history.git/lfs/objects").rglob("*"):
            if path.is_file():
                path.write_bytes(damage)
        found = manifest(root)
        with pytest.raises(DataError, match=r"what it has of 'docs/c\.txt' is not what was kept"):
            session.undo(action)
        assert manifest(root) == found
        assert in_stash(root, action) == []
        assert session.journal.standing(action).state == "executed"


def test_what_was_kept_one_way_is_found_when_the_other_is_chosen(root: Path):
    before = but_inodes(root)
    with git_session(root) as session:
        one = done(session, do="delete", path="run.sh")
    with granted(open_session(root, root.parent / "state")) as session:
        other = done(session, do="delete", path="b.txt")
        assert in_stash(root, other) == ["0"]
        session.undo(one)
    with git_session(root) as session:
        session.undo(other)
    assert but_inodes(root) == before


def test_without_git_the_choice_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(HostError, match="there is no program `git`"):
        git_session(root)


def test_a_store_forgets_and_remains_whole(tmp_path: Path):
    root = build_tree(tmp_path / "s/tree")
    with git_session(root) as session:
        for number in range(45):  # more packs than are left alone
            session.commit(done(session, do="write", path="b.txt", content=f"{number}" * 2000))
        kept = done(session, do="write", path="b.txt", content="last")
        assert git(root, "fsck", "--strict", "--no-dangling") == ""
        assert len(list((root.parent / "state/history.git/objects/pack").glob("*.pack"))) < 30
        session.undo(kept)
    assert (root / "b.txt").read_text() == "44" * 2000
    assert GitStore(root.parent / "state/history.git").has(kept)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 1006), marks=pytest.mark.soak)], ids=len)
@pytest.mark.timeout(7200)
def test_any_sequence_is_taken_back_out_of_git(tmp_path: Path, seeds: range):
    for seed in seeds:
        draw = random.Random(seed)
        root = build_tree(tmp_path / "s/tree")
        before = but_inodes(root)
        with git_session(root) as session:
            names: list[str] = []
            for number in range(draw.randint(1, 8)):
                try:
                    names.append(done(session, **drawn(draw, root, number)))
                except InputError:
                    continue
                if draw.random() < 0.4:
                    session.undo(names[-1])
                    if draw.random() < 0.5:
                        session.redo(names[-1])
                    else:
                        names.pop()
            for name in reversed(names):
                session.undo(name)
            assert but_inodes(root) == before, seed
            assert session.audit() == []
        shutil.rmtree(tmp_path / "s")
