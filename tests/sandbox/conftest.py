"""One sandbox per file of tests, and short ways to run a program in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError, Outcome, Program
from autoclave.sandbox import Cell, Limits, Profile, Runner, Sandbox, open_sandbox

LIMITS = Limits(cpu_s=2, wall_s=7, memory_mb=256, output_bytes=1 << 20, processes=16, disk_mb=8, open_files=64)
PLAIN = Profile("plain")
MINIMAL = Runner(
    "minimal",
    "import os, sys\n"
    "def run(test):\n"
    "    exec(test.program, test.main.__dict__)\n"
    "    sys.stdout.flush(); sys.stderr.flush()\n"
    "    os._exit(0)\n",
)

Run = Callable[..., Outcome]
OpenCell = Callable[..., Cell]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox(SandboxConfig())
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    yield opened
    opened.close()


@pytest.fixture
def open_cell(sandbox: Sandbox) -> OpenCell:
    """open_cell(source, runner=MINIMAL, profile=PLAIN, **limits): a fresh cell, to be used in a `with` statement."""

    def opened(source: str, runner: Runner = MINIMAL, profile: Profile = PLAIN, **limits: float) -> Cell:
        return sandbox.open(Program(source), profile, replace(LIMITS, **limits), runner)

    return opened


@pytest.fixture
def run(open_cell: OpenCell) -> Run:
    """run(source, stdin=b"", **limits): the outcome of one test in a fresh cell."""

    def run_once(source: str, stdin: bytes = b"", **limits: float) -> Outcome:
        with open_cell(source, **limits) as cell:
            assert cell.compile_error is None
            return cell.run(stdin)

    return run_once
