"""Statistics, differences and samples of sets of problems."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import replace

from autoclave.core import AnswerTests, Problem, StdinCase, StdinTests
from autoclave.problems.inspection import differences, sample, statistics_of


def problem(id: str, cases: int = 1, **fields: object) -> Problem:
    return Problem("Add.", StdinTests("stdin", [StdinCase(str(n), str(n)) for n in range(cases)]), id=id, **fields)


def test_numbers_of_a_set():
    found = statistics_of(
        [
            problem("a", 3, source="taco", difficulty="EASY", solutions=["pass"], released=datetime.date(2024, 1, 2)),
            problem("b", 8, source="taco", released=datetime.date(2023, 1, 2)),
            Problem("1 + 1?", AnswerTests("answer", "2", "math"), id="c", source="aime"),
        ]
    )
    assert (found.num_problems, found.num_with_solutions) == (3, 1)
    assert (found.kinds, found.sources) == ({"stdin": 2, "answer": 1}, {"taco": 2, "aime": 1})
    assert found.difficulties == {"": 2, "EASY": 1}
    assert (found.num_tests, found.released) == ((3, 5.5, 8), ("2023-01-02", "2024-01-02"))
    assert statistics_of([]).num_tests is None


def test_differences_between_two_sets():
    first = [problem("same"), problem("gone"), problem("other")]
    second = [problem("new"), replace(first[2], statement="Subtract.", solutions=["pass"]), problem("same")]
    assert [(one.id, one.kind, one.fields) for one in differences(first, second)] == [
        ("new", "only in the second", ()),
        ("other", "changed", ("statement", "solutions")),
        ("gone", "only in the first", ()),
    ]


def test_a_sample_is_drawn_evenly_and_the_same_for_a_seed():
    problems = [problem(str(number)) for number in range(10)]
    drawn = Counter(one.id for seed in range(2000) for one in sample(problems, 3, seed))
    assert len(drawn) == 10
    assert all(450 < count < 750 for count in drawn.values()), drawn
    chosen = sample(problems, 3, 1)
    assert chosen == sample(iter(problems), 3, 1)
    assert [problems.index(one) for one in chosen] == sorted(problems.index(one) for one in chosen)
    assert sample(problems, 20, 0) == problems
