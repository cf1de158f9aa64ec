"""Short ways to pose problems with checks; the judge is that of the folder above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoclave.core import CheckTests, Problem, Verdict


@pytest.fixture
def check_problem() -> Callable[..., Problem]:
    """check_problem("assert candidate(1) == 1", entry_point=..., preamble=..., mutates_arguments=...)."""

    def made(source: str, entry_point: str = "f", invocation: str = "", preamble: str = "", **more: Any) -> Problem:
        mutates = more.pop("mutates_arguments", False)
        tests = CheckTests("check", entry_point, source, invocation, preamble, mutates)
        return Problem("s", tests, **{"id": "p", "profile": "plain"} | more)

    return made


@pytest.fixture
def checked(judged: Callable[..., Verdict], check_problem: Callable[..., Problem]) -> Callable[..., Verdict]:
    """checked(source of the check, program, ...): the verdict."""

    def verdict_of(source: str, program: str, *args: str, **options: Any) -> Verdict:
        return judged(check_problem(source, *args, **options), program)

    return verdict_of
