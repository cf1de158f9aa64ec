"""A tree with one of everything, and sessions on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import IsolationError
from autoclave.runtime.session import Session
from autoclave.workspaces import SealedCommand, run_command
from tests.runtime.trees import build_tree, open_on


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_tree(tmp_path / "tree")


@pytest.fixture
def opened(root: Path) -> Iterator[Session]:
    with open_on(root) as session:
        yield session


@pytest.fixture(scope="session")
def sealing_host(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A host that can seal commands."""
    place = tmp_path_factory.mktemp("trial")
    for name in ("tree", "upper", "work"):
        (place / name).mkdir()
    try:
        run_command(SealedCommand(("true",), place / "tree", place))
    except IsolationError as error:
        pytest.skip(f"this host cannot seal commands: {error}")


@pytest.fixture(params=["overlay", "copy"])
def session(root: Path, request: pytest.FixtureRequest, sealing_host: None) -> Iterator[Session]:
    """A session in which commands get a layer over the tree, or a copy of it."""
    with open_on(root) as opened:
        opened.actions.managers["run"].commands.__dict__["method"] = request.param
        yield opened
