"""The history as a Git repository: a commit per action, the last of them the files as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.git_export import export_git
from autoclave.runtime.session import Session
from tests.runtime.trees import done

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def git(repository: Path, *words: str) -> str:
    command = ["git", "-c", "core.quotePath=false", "--git-dir", repository, *words]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="surrogateescape")


def plain_files(root: Path) -> dict[str, str]:
    """What Git can know of a tree: files and links, with content, and whether a file can be run."""
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(root))] = f"120000 {os.readlink(path)}"
        elif path.is_file():
            mode = "100755" if path.stat().st_mode & 0o100 else "100644"
            found[str(path.relative_to(root))] = f"{mode} {path.read_bytes()!r}"
    return found


def files_at(repository: Path, commit: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in git(repository, "ls-tree", "-r", "-z", commit).split("\0")[:-1]:
        facts, _, path = line.partition("\t")
        mode, _, blob = facts.split()
        command = ["git", "--git-dir", repository, "cat-file", "blob", blob]
        content = subprocess.run(command, capture_output=True, check=True).stdout
        found[path] = f"{mode} {content.decode() if mode == '120000' else repr(content)}"
    return found


def test_each_commit_has_the_files_as_they_were_after_its_action(root: Path, opened: Session, tmp_path: Path):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("of the user")
    operations = [
        {"do": "write", "path": "b.txt", "content": "new\n"},
        {"do": "move", "path": "docs", "to": "moved"},
        {"do": "delete", "path": "moved/c.txt"},
        {"do": "make_folder", "path": "moved/c.txt/deep"},
        {"do": "write", "path": "moved/c.txt/deep/f", "content": "f"},
        {"do": "delete", "path": "moved/c.txt", "recursive": True},
        {"do": "make_link", "path": "moved/c.txt", "target": "fifo"},
        {"do": "set_mode", "path": "odd \udcff\nname", "mode": 0o755},
        {"do": "move", "path": "run.sh", "to": "a.txt", "replace": True},
    ]
    without_git = {".git/config"}
    wanted = [plain_files(root)]
    for operation in operations:
        done(opened, **operation)
        wanted.append(plain_files(root))
    undone = done(opened, do="delete", path="a.txt")
    opened.undo(undone)
    out = tmp_path / "history.git"
    assert export_git(opened, out) == len(operations)
    git(out, "fsck", "--strict", "--no-dangling")
    commits = git(out, "rev-list", "--reverse", "main").split()
    assert len(commits) == len(wanted)
    for commit, files in zip(commits, wanted, strict=True):
        assert files_at(out, commit) == {path: kept for path, kept in files.items() if path not in without_git}
    assert "delete: action" in git(out, "log", "--format=%s")
    with pytest.raises(InputError, match="exists already"):
        export_git(opened, out)


def test_what_a_committed_action_replaced_is_not_kept_so_its_commit_is_empty(
    root: Path, opened: Session, tmp_path: Path
):
    opened.commit(done(opened, do="write", path="b.txt", content="new\n"))
    done(opened, do="write", path="b.txt", content="newer\n")
    out = tmp_path / "history.git"
    assert export_git(opened, out) == 2
    shown = [git(out, "show", "main:b.txt"), git(out, "show", "main~1:b.txt"), git(out, "show", "main~2:b.txt")]
    assert shown == ["newer\n", "new\n", "new\n"]
