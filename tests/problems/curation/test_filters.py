"""Stages that decide on one candidate at a time."""

from __future__ import annotations

import datetime

import pytest

from autoclave.core import AnswerTests, CheckTests
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.filters import (
    Selection,
    enough_tests,
    fitting_difficulty,
    num_assertions,
    selected,
    short_prompt,
)
from autoclave.problems.curation.stage import Dropped

from .conftest import CASES, candidate


def reasons(stage, *given: ProblemCandidate) -> list[str]:
    return [one.reason if isinstance(one, Dropped) else "kept" for one in stage.run(given)]


def test_equal_tests_count_once_and_answers_need_one():
    check = CheckTests("check", "f", "def check(f):\n    assert f(1)\n    assert f(2)", "check(candidate)")
    answer = candidate("answer", tests=AnswerTests("answer", "2", "math"))
    given = (
        candidate("6"),
        candidate("5", cases=CASES[:5]),
        candidate("4", cases=CASES[:4] * 3),
        candidate("2", tests=check),
    )
    assert reasons(enough_tests(5), *given, answer) == ["kept", "kept", "few_tests", "few_tests", "kept"]
    (kept,) = enough_tests(5).run(given[:1])
    assert (kept.facts["tests"], kept.facts["input_characters"]) == (6, 7)


@pytest.mark.parametrize(
    ("source", "number"),
    [("def check(c):\n  assert c(1)\n  assert c(2)\n", 2), ("def check(c):\n  c(1)", 1), ("def check(", 1), ("", 1)],
)
def test_assertions_of_a_check(source: str, number: int):
    assert num_assertions(source) == number


def test_statement_and_starter_code_are_counted_together():
    stage = short_prompt(5, "words", lambda text: len(text.split()))
    given = candidate("a", statement="one two three"), candidate("b", statement="one two three", starter_code="x = y")
    assert reasons(stage, *given) == ["kept", "long_prompt"]


def test_only_sources_with_a_window_need_dates():
    def released(day: str | None, source: str) -> ProblemCandidate:
        date = day and datetime.date.fromisoformat(day)
        return candidate(f"{day} {source}", released=date, origin=Origin(source, "1"))

    stage = selected({"lcb": Selection(datetime.date(2023, 5, 1), datetime.date(2024, 8, 1))})
    given = [released(day, "lcb") for day in ("2023-04-30", "2023-05-01", "2024-07-31", "2024-08-01", None)]
    assert reasons(stage, *given, released(None, "taco"), released("1999-01-01", "taco")) == [
        *("outside_dates", "kept", "kept", "outside_dates", "no_date"),
        *("kept", "kept"),
    ]


def test_difficulties_are_chosen_by_source():
    stage = selected({"apps": Selection(difficulties=("introductory", "easy"))})
    given = [candidate(name, difficulty=name, origin=Origin("apps", "1")) for name in ("introductory", "", "interview")]
    assert reasons(stage, *given, candidate("a")) == ["kept", "other_difficulty", "other_difficulty", "kept"]


def test_pass_rates_select_by_id():
    stage = fitting_difficulty({"easy": 1.0, "hard": 0.0, "fit": 0.5}, "digest", 0.1, 0.9)
    given = [candidate(name) for name in ("easy", "hard", "fit", "unknown")]
    assert reasons(stage, *given) == ["too_easy", "too_hard", "kept", "kept"]
