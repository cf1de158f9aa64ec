"""Candidates that are made up, and one judge for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, Problem, StdinCase, StdinTests
from autoclave.judge import Judge, LocalJudge
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache

ADD = "print(sum(map(int, input().split())))"
CASES = tuple((f"{a} {b}\n", f"{a + b}\n") for a, b in ((1, 2), (0, 0), (5, 7), (10, -3), (100, 23), (4, 4)))


def candidate(
    id: str, *solutions: str, cases: tuple[tuple[str, str], ...] = CASES, origin: Origin | None = None, **fields: Any
) -> ProblemCandidate:
    """A problem of adding two numbers, unless its fields say something else."""
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases])
    defaults = {"statement": f"Add two numbers ({id}).", "profile": "plain", "time_limit_s": 1.0}
    problem = Problem(**{"tests": tests, **defaults, "id": id, "solutions": list(solutions), **fields})
    return ProblemCandidate(problem, origin or Origin("made", f"made.jsonl:{id}"))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=2, time_limit_range=(0.5, 12.0)))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[VerdictCache]:
    with VerdictCache(tmp_path / "verdicts.sqlite", {}) as opened:
        yield opened


@pytest.fixture
def programs(judge: Judge, cache: VerdictCache) -> CandidatePrograms:
    return CandidatePrograms(judge, cache, 16)
