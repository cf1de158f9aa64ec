"""Sub-tasks of one example each, and their split."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import AnswerTests, CallCase, CallTests, Problem, StdinCase, StdinTests
from autoclave.evaluation.probing.subtasks import leaks, places_to_test, subtasks_of


def adding(name: str, *inputs: int) -> Problem:
    return Problem(f"Add 1 ({name}).", CallTests("call", "f", [CallCase([n], n + 1) for n in inputs]), id=name)


def test_a_sub_task_is_its_problem_with_one_example_which_is_its_only_test():
    first, second = subtasks_of([adding("a", 1, 5)], test_share=0.2, seed=0)
    assert first.problem.statement == "Add 1 (a).\nf(1) -> 2"
    assert second.problem.statement == "Add 1 (a).\nf(5) -> 6"
    assert second.problem.tests == CallTests("call", "f", [CallCase([5], 6)])
    assert (second.problem.id, second.given, second.task) == ("a#1", "f(5)", 0)


def test_examples_of_standard_input_are_shown_in_one_line_where_they_have_one():
    tests = StdinTests("stdin", [StdinCase("3 4\n", "7\n"), StdinCase("1\n2\n", "3\n")])
    short, long = subtasks_of([Problem("Add.", tests, id="a")], test_share=0.2, seed=0)
    assert short.problem.statement == "Add.\n3 4 -> 7"
    assert long.problem.statement == "Add.\nInput:\n1\n2\nOutput:\n3"


def test_problems_whose_programs_cannot_be_traced_have_no_sub_tasks():
    answer = Problem("What?", AnswerTests("answer", "3", "math"), id="m")
    cpp = Problem("Add.", StdinTests("stdin", [StdinCase("1\n", "1\n")]), id="c", language="cpp")
    assert subtasks_of([answer, cpp], test_share=0.2, seed=0) == []


def test_a_repeated_example_is_one_sub_task():
    found = subtasks_of([adding("a", 1, 2, 1, 2, 3)], test_share=0.2, seed=0)
    assert [each.given for each in found] == ["f(1)", "f(2)", "f(3)"]


def test_long_examples_are_left_out_and_others_limited_in_number():
    problem = adding("a", 1, 10**50, *range(2, 9))
    found = subtasks_of([problem], test_share=0.2, seed=0, most=5, longest=20)
    assert len(found) == 5
    assert all(len(each.given) < 20 for each in found)


@pytest.mark.parametrize(("count", "tested"), [(0, 0), (1, 0), (2, 0), (3, 1), (5, 1), (8, 2), (10, 2), (100, 20)])
def test_a_fifth_of_the_sub_tasks_is_for_test(count: int, tested: int):
    assert len(places_to_test(count, test_share=0.2, seed="0 a")) == tested


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.text(max_size=5))
def test_at_least_one_sub_task_is_for_training(count: int, share: float, seed: str):
    tested = places_to_test(count, test_share=share, seed=seed)
    assert tested <= set(range(count))
    assert len(tested) < count


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 99))
def test_the_side_of_a_sub_task_depends_on_seed_and_problem_alone(sizes: list[int], seed: int):
    problems = [adding(str(name), *range(size)) for name, size in enumerate(sizes)]
    together = subtasks_of(problems, test_share=0.2, seed=seed)
    alone = [each for problem in problems for each in subtasks_of([problem], test_share=0.2, seed=seed)]
    assert [(each.problem.id, each.is_test) for each in together] == [(each.problem.id, each.is_test) for each in alone]


def test_another_seed_is_another_split():
    sides = {
        tuple(each.is_test for each in subtasks_of([adding("a", *range(20))], test_share=0.2, seed=seed))
        for seed in range(5)
    }
    assert len(sides) == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_after_removing_leaks_no_run_is_on_both_sides(runs: list[tuple[int, bool]]):
    dropped = leaks(runs)
    kept = [run for index, run in enumerate(runs) if index not in dropped]
    sides = {is_test: {key for key, on in kept if on is is_test} for is_test in (True, False)}
    assert sides[True].isdisjoint(sides[False])
    assert Counter(run for run in kept if not run[1]) == Counter(
        run for run in runs if not run[1]
    )  # all that is learnt
    assert all(runs[index][1] for index in dropped)
