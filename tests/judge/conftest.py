"""One judge per file of tests, and short ways to pose problems to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import CallCase, CallTests, IsolationError, Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.sandbox import Sandbox, open_sandbox

SANDBOX = SandboxConfig(memory_limit_mb=256, output_limit_mb=2.0, process_limit=16, disk_limit_mb=8)
JUDGE = JudgeConfig(workers=2, time_limit_range=(0.5, 20.0), default_time_limit_s=2.0)


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SANDBOX, JUDGE)
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A new one for each test: its zygotes have met no runner."""
    try:
        opened = open_sandbox(SandboxConfig())
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    yield opened
    opened.close()


@pytest.fixture
def stdin_problem() -> Callable[..., Problem]:
    """stdin_problem(("in", "out"), ..., time_limit_s=...): a problem with such cases."""

    def made(*cases: tuple[str, str], **fields: Any) -> Problem:
        return Problem("s", StdinTests("stdin", [StdinCase(*case) for case in cases]), **{"id": "p"} | fields)

    return made


@pytest.fixture
def call_problem() -> Callable[..., Problem]:
    """call_problem("f", ([1, 2], 3), ..., preamble=""): a problem with such calls."""

    def made(entry_point: str, *cases: tuple[list[Any], Any], preamble: str = "", **fields: Any) -> Problem:
        tests = CallTests("call", entry_point, [CallCase(*case) for case in cases], preamble)
        return Problem("s", tests, **{"id": "p"} | fields)

    return made


@pytest.fixture
def judged(judge: LocalJudge) -> Callable[..., Verdict]:
    """judged(problem, source, tests=..., stop_at_failure=...): the verdict."""

    def verdict_of(problem: Problem, source: str, **options: Any) -> Verdict:
        return judge.submit(JudgeJob(problem, Program(source), "x", **options)).result(timeout=120)

    return verdict_of
