"""Built-in functions: right references, strict tests, no function on both sides of the split."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from autoclave.config import FunctionsConfig, JudgeConfig, SandboxConfig, TrainConfig
from autoclave.core import CallTests, Problem, Program
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.problems import ProblemSets
from autoclave_environments.functions import build_functions
from autoclave_environments.functions.build import FUNCTIONS

TRAIN, HELDOUT = build_functions(FunctionsConfig())
ALL = [*TRAIN, *HELDOUT]


def function_of(problem: Problem) -> Any:
    scope: dict[str, Any] = {}
    exec(problem.solutions[0], scope)
    return scope[cases_of(problem).entry_point]


def cases_of(problem: Problem) -> CallTests:
    assert isinstance(problem.tests, CallTests)
    return problem.tests


def test_there_are_enough_problems_on_both_sides():
    assert len(HELDOUT) >= 60
    assert len(TRAIN) >= 100
    assert len({problem.id for problem in ALL}) == len(ALL)


@pytest.mark.parametrize("seed", range(5))
def test_no_function_is_on_both_sides(seed: int):
    train, heldout = build_functions(FunctionsConfig(seed=seed))
    names = [{cases_of(problem).entry_point for problem in side} for side in (train, heldout)]
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == len(FUNCTIONS.read_text().splitlines())


def test_no_two_problems_behave_alike_on_the_inputs_of_both():
    for kinds in {tuple(problem.tags) for problem in ALL}:
        alike = [problem for problem in ALL if tuple(problem.tags) == kinds]
        inputs = [case.arguments for problem in alike for case in cases_of(problem).cases[:2]]
        behaviours = Counter(str([function_of(problem)(*each) for each in inputs]) for problem in alike)
        assert max(behaviours.values()) == 1


def test_no_program_with_one_answer_passes_most_tests():
    for problem in ALL:
        answers = Counter(str(case.output) for case in cases_of(problem).cases)
        assert max(answers.values()) <= 6, problem.id


def test_the_words_name_the_function_and_hold_no_unfilled_constant():
    for problem in ALL:
        assert f"`{cases_of(problem).entry_point}(" in problem.statement
        assert " K" not in problem.statement


def test_every_reference_passes_its_tests():
    for problem in ALL:
        assert all(function_of(problem)(*case.arguments) == case.output for case in cases_of(problem).cases), problem.id


def test_the_judge_passes_references_of_every_kind():
    some = ALL[::6]
    assert {problem.tags[0] for problem in some} >= {"numbers", "text", "words", "n"}
    with LocalJudge(SandboxConfig(), JudgeConfig()) as judge:
        jobs = [judge.submit(JudgeJob(problem, Program(problem.solutions[0]))) for problem in some]
        assert all(job.result().is_accepted for job in jobs)


def test_another_process_builds_the_same_problems():
    script = (
        "from autoclave.config import FunctionsConfig\n"
        "from autoclave_environments.functions import build_functions\n"
        "print([p.to_json() for side in build_functions(FunctionsConfig()) for p in side])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found == f"{[problem.to_json() for problem in ALL]}\n"


def test_a_run_trains_on_them_and_imitates_their_references():
    sets = ProblemSets(TrainConfig(problems=FunctionsConfig()))
    assert (sets.train, sets.heldout) == (TRAIN, HELDOUT)
    assert sets.demonstrations()[0].response == f"```python\n{TRAIN[0].solutions[0]}\n```"
