"""One sandbox per file of tests, and short ways to run a program in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError, Outcome
from autoclave.sandbox import Cell, Profile, Runner, Sandbox, open_sandbox, streams
from autoclave.sandbox.bootstrap import is_compiled
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from autoclave_testing.sandboxes import LIMITS, MINIMAL, PLAIN

Run = Callable[..., Outcome]
OpenCell = Callable[..., Cell]


@pytest.fixture(scope="module", params=["compiled", "python"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """With the compiled parts of guest and judge, and with what does the same where they could not be built."""
    try:
        open_sandbox(SandboxConfig()).close()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    if request.param == "compiled" and not (is_compiled() and streams.is_compiled()):
        pytest.skip("the compiled parts were not built")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(streams, "_compiled", None)
        opened = ZygotePool(NamespaceLauncher(use_compiled=request.param == "compiled"))
        yield opened
        opened.close()


@pytest.fixture
def open_cell(sandbox: Sandbox) -> OpenCell:
    """open_cell(source, runner=MINIMAL, profile=PLAIN, **limits): a fresh cell, to be used in a `with` statement."""

    def opened(source: str, runner: Runner = MINIMAL, profile: Profile = PLAIN, **limits: float) -> Cell:
        return sandbox.open(source.encode("utf-8", "surrogatepass"), profile, replace(LIMITS, **limits), runner)

    return opened


@pytest.fixture
def run(open_cell: OpenCell) -> Run:
    """run(source, stdin=b"", **limits): the outcome of one test in a fresh cell."""

    def run_once(source: str, stdin: bytes = b"", **limits: float) -> Outcome:
        with open_cell(source, **limits) as cell:
            assert cell.compile_error is None
            return cell.run(stdin)

    return run_once
