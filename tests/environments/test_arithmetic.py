"""Synthetic arithmetic: right answers, complete workings, split pairs, marked mistakes of the teacher."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from autoclave.config import ArithmeticConfig, SftConfig
from autoclave.core import ConfigError, Problem
from autoclave.judge import ANSWER_RULES
from autoclave.problems import Demonstration
from autoclave_environments.arithmetic import arithmetic_demonstrations, build_arithmetic
from autoclave_environments.arithmetic.calculation import OPERATIONS, Calculation, draw, right_working

SMALL = ArithmeticConfig(seed=3, train=300, heldout=200, operations=(2, 9))
CAREFUL = SftConfig(demonstrations=300, error_rate=0, misunderstood_share=0)


@st.composite
def calculations(draws: st.DrawFn) -> Calculation:
    """Any that may be drawn, of 1 to 20 operations."""
    rng = random.Random(draws(st.integers(0, 2**32)))
    drawn = draw(rng, draws(st.integers(1, 20)), lambda _: True)
    assert drawn  # without forbidden pairs it never gets stuck
    return drawn


def evaluated(statement: str) -> int:
    """What Python makes of a statement: another parser than ours, with its own precedence."""
    expression = re.fullmatch(r"Compute ([-+*()0-9 mod]+)\.", statement)
    assert expression
    return eval(expression[1].replace("mod", "%"))


def steps(response: str) -> list[tuple[int, int]]:
    """What stands left and right of the sign of equality in each line, evaluated."""
    lines = response.split("\n")[:-1]
    return [(eval(left.replace("mod", "%")), int(right)) for left, right in (line.split("=") for line in lines)]


@given(calculations())
def test_the_answer_is_what_an_independent_evaluation_of_the_statement_gives(calculation: Calculation):
    assert calculation.answer == evaluated(calculation.statement)


@given(calculations())
def test_the_right_working_has_a_line_per_operation_and_the_answer(calculation: Calculation):
    response = right_working(calculation)
    lines = steps(response)
    assert all(left == right for left, right in lines)
    assert len(lines) == len(calculation.operations)
    assert lines[-1][1] == calculation.answer
    assert ANSWER_RULES["final"](response) == str(calculation.answer)


@given(calculations())
def test_every_operation_changes_the_number_and_keeps_it_from_1_to_99(calculation: Calculation):
    number = calculation.first
    for operation in calculation.operations:
        before, number = number, operation.apply(number)
        assert number != before
        assert 1 <= number <= 99


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 8), st.integers(0, 8))
def test_problems_have_the_numbers_of_operations_asked_for_and_right_answers(seed: int, fewest: int, more: int):
    config = ArithmeticConfig(seed=seed, train=60, heldout=200, operations=(fewest, fewest + more))
    built = build_arithmetic(config)
    assert (len(built.train), len(built.heldout)) == (60, 200)
    for problem in built.train + built.heldout:
        assert problem.tests.expected == str(evaluated(problem.statement))
        assert fewest <= num_operations(problem) <= fewest + more
        assert len(problem.solutions[0].split("\n")) == num_operations(problem) + 1
    assert {num_operations(problem) for problem in built.train} == set(range(fewest, fewest + more + 1))


@pytest.mark.parametrize(("signs", "highest"), [(("+", "-"), 9), (("*", "mod", "+"), 30)])
def test_problems_and_workings_keep_to_the_signs_and_numbers_asked_for(signs: tuple[str, ...], highest: int):
    config = SMALL.model_copy(update={"signs": signs, "highest": highest})
    built = build_arithmetic(config)
    written = arithmetic_demonstrations(config, SftConfig(demonstrations=300))
    for problem in built.train + built.heldout:
        used = {re.sub(r"\d+$", "", name) for name in problem.id.split(".")[2:]}
        assert used <= set(signs)
        assert all(1 <= right <= highest for _, right in steps(problem.solutions[0]))
    assert all(1 <= int(number) <= highest for each in written for number in re.findall(r"=(\d+)", each.response))
    known = [operation for operation in OPERATIONS if operation.sign in signs]
    assert len(built.heldout_pairs) == round(0.25 * len(known) ** 2)


def num_operations(problem: Problem) -> int:
    return int(problem.tags[0].removeprefix("operations-"))


def pairs_of(problem_id: str) -> set[tuple[str, str]]:
    """Read from the id alone: `arithmetic.3.+4.*5`."""
    _, _, *names = problem_id.split(".")
    return set(pairwise(names))


def test_kept_pairs_occur_in_every_heldout_problem_and_never_in_training():
    built = build_arithmetic(SMALL)
    assert len(built.heldout_pairs) == round(0.25 * len(OPERATIONS) ** 2)
    assert all(pairs_of(problem.id) & built.heldout_pairs for problem in built.heldout)
    assert not any(pairs_of(problem.id) & built.heldout_pairs for problem in built.train)
    written = arithmetic_demonstrations(SMALL, CAREFUL)
    assert not any(pairs_of(each.task_id) & built.heldout_pairs for each in written)
    learnt = {name for problem in built.train for pair in pairs_of(problem.id) for name in pair}
    assert learnt == {operation.name for operation in OPERATIONS}  # every operation is learnt by itself


def test_problem_ids_are_unique():
    built = build_arithmetic(SMALL)
    statements = [problem.statement for problem in built.train + built.heldout]
    assert len(statements) == len(set(statements))


def test_the_same_seed_gives_the_same_problems_in_any_process():
    program = (
        "from autoclave.config import ArithmeticConfig, SftConfig\n"
        "from autoclave_environments.arithmetic import arithmetic_demonstrations, build_arithmetic\n"
        "import hashlib\n"
        "config = ArithmeticConfig(seed=5, train=40, heldout=200)\n"
        "built = build_arithmetic(config), arithmetic_demonstrations(config, SftConfig(demonstrations=40))\n"
        "print(hashlib.sha256(repr(built[0].train + built[0].heldout + built[1]).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(digests) == 1
    assert build_arithmetic(SMALL) != build_arithmetic(SMALL.model_copy(update={"seed": 4}))


# --- The teacher ---------------------------------------------------------------------------------------------------


def answer_in(demonstration: Demonstration) -> str | None:
    return ANSWER_RULES["final"](demonstration.response)


def test_a_teacher_with_error_rate_0_makes_no_mistake():
    for each in arithmetic_demonstrations(SMALL, CAREFUL):
        statement = each.messages[0]["content"]
        assert each.is_right
        assert answer_in(each) == str(evaluated(statement))
        assert all(left == right for left, right in steps(each.response))


def test_wrong_demonstrations_are_marked_and_have_an_answer():
    written = arithmetic_demonstrations(SMALL, SftConfig(demonstrations=600))
    rights = [answer_in(each) == str(evaluated(each.messages[0]["content"])) for each in written]
    assert rights == [each.is_right for each in written]
    assert 0.2 < sum(rights) / len(rights) < 0.6
    assert all(answer_in(each) for each in written)


def test_a_misunderstood_operation_is_always_mistaken_in_the_same_way():
    sft = SftConfig(demonstrations=600, error_rate=0, misunderstood_share=0.3, misunderstood_error_rate=1)
    results: dict[str, set[int]] = {}
    for each in arithmetic_demonstrations(SMALL, sft):
        for line in each.response.split("\n")[:-1]:
            left, right = line.split("=")
            results.setdefault(left, set()).add(int(right))
    assert all(len(found) == 1 for found in results.values())


# --- What cannot be had --------------------------------------------------------------------------------------------


def test_too_many_problems_are_an_error_with_a_fix():
    with pytest.raises(ConfigError, match=r"^problems\.train = 1000000: only \d+ different problems .* Fix: lower it"):
        build_arithmetic(ArithmeticConfig(train=1_000_000, heldout_share=0.9, operations=(2, 2)))


def test_a_share_that_leaves_nothing_to_learn_from_is_an_error():
    config = ArithmeticConfig(heldout_share=1, train=10)
    with pytest.raises(ConfigError, match=r"^problems\.train = 10: only 0 different problems"):
        build_arithmetic(config)
    with pytest.raises(ConfigError, match=r"^problems\.heldout_share = 1\.0: leaves no demonstration"):
        arithmetic_demonstrations(config, CAREFUL)


@pytest.mark.parametrize("operations", [(1, 3), (5, 4)])
def test_operations_are_at_least_two_and_in_order(operations: tuple[int, int]):
    with pytest.raises(ValidationError, match="operations"):
        ArithmeticConfig(operations=operations)


def test_a_share_of_the_demonstrations_can_give_their_answer_alone_and_the_others_stay():
    config = SMALL.model_copy(update={"answer_alone_share": 0.3})
    written = arithmetic_demonstrations(config, CAREFUL)
    short = [each.response for each in written if "=" not in each.response]
    assert 0.2 < len(short) / len(written) < 0.4
    assert all(re.fullmatch(r"\\boxed\{\d+\}", response) for response in short)
    assert all(each.is_right for each in written)
