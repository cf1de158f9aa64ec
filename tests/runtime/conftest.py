"""A tree with one of everything, and a session on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.runtime.session import Session
from tests.runtime.trees import build_tree, open_on


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_tree(tmp_path / "tree")


@pytest.fixture
def opened(root: Path) -> Iterator[Session]:
    with open_on(root) as session:
        yield session
