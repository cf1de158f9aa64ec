"""A tree with one of everything, and a session on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.runtime.session import Session
from tests.runtime.trees import open_on


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "docs/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a.txt").write_text("first\n")
    (root / "b.txt").write_bytes(b"")
    (root / "docs/c.txt").write_text("c" * 10_000)
    (root / "docs/deep/d.txt").write_text("d")
    (root / "docs/link").symlink_to("../a.txt")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o4750)
    (root / "odd \udcff\nname").write_text("odd")
    os.mkfifo(root / "docs/fifo")
    os.link(root / "a.txt", root / "docs/same as a")
    with (root / "holes").open("wb") as file:
        file.truncate(1 << 20)
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(root / "docs/c.txt", "user.note", b"kept")
    for path in [*root.rglob("*"), root]:
        os.utime(path, ns=(10**18, 10**18 + 123_456_789), follow_symlinks=False)
    return root


@pytest.fixture
def opened(root: Path) -> Iterator[Session]:
    with open_on(root) as session:
        yield session
