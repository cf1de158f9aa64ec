"""A parameter that the statement leaves unsaid: the tests tell it, and the teacher guesses it before reading them."""

from __future__ import annotations

from itertools import islice

import pytest

from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave.core import Problem
from autoclave_environments.synthetic import build_synthetic, demonstrated_attempts
from tests.problems.whole_programs import passes

_SMALL = SyntheticConfig(train=60, validation=5, heldout=200, unsaid=0.6)
_PERFECT = SftConfig(error_rate=0.0, misunderstood_error_rate=0.0)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    built = build_synthetic(_SMALL)
    return [*built.train, *built.heldout]


def test_so_large_a_share_of_the_statements_leaves_one_parameter_unsaid(problems: list[Problem]):
    marks = [problem.statement.count("?") for problem in problems]
    assert set(marks) <= {0, 1, 2}  # one parameter may be named twice
    assert sum(map(bool, marks)) / len(marks) == pytest.approx(0.6, abs=0.12)


def test_an_unsaid_parameter_is_in_the_solution_which_returns_the_value_itself(problems: list[Problem]):
    for problem in problems:
        assert "?" not in problem.solutions[0]
        if "?" in problem.statement:
            *_, last = problem.solutions[0].splitlines()
            assert last.split("(")[-1].strip(")*").removeprefix("    return ") in ("x", "s", "n")
            assert passes(problem, problem.solutions[0])


def test_a_teacher_without_errors_fails_on_what_is_unsaid_until_the_tests_are_read():
    for problem, (first, second, third) in islice(demonstrated_attempts(_SMALL, _PERFECT, turns=3), 150):
        is_unsaid = "?" in problem.statement
        if is_unsaid:
            assert program(first.response) != program(second.response)
        assert (second.is_right, third.is_right) == (True, True)
        for attempt in (first, second):
            assert not attempt.is_right or passes(problem, program(attempt.response))
        assert is_unsaid or first.is_right


def test_the_first_attempts_are_demonstrated_without_reading_too():
    guessing = SftConfig(error_rate=0.0, misunderstood_error_rate=1.0, misunderstood_share=0.0)
    for problem, attempts in islice(demonstrated_attempts(_SMALL, guessing, turns=2), 60):
        if "?" in problem.statement:
            assert all(program(attempt.response) != problem.solutions[0] for attempt in attempts)


def program(response: str) -> str:
    return response.removeprefix("```python\n").removesuffix("\n```")
