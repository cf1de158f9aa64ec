"""Rewards of responses to mathematics problems, and of the solutions of synthetic arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoclave.config import ArithmeticConfig, JudgeConfig, MathematicsConfig, SandboxConfig
from autoclave.core import AnswerTests, Fault, HostError, IsolationError, Problem, Reward, Status, Verdict
from autoclave.judge import Judge, LocalJudge
from autoclave.tasks import Mathematics
from autoclave_environments.arithmetic import build_arithmetic
from tests.training_parts import DEADLINE_S

from .test_code_generation import ScriptedJudge, verdict

PROBLEM = Problem(statement="What is 1/4 + 1/4?", tests=AnswerTests("answer", "1/2", "math"), id="half")


def reward_of(judge: Judge, response: str, **settings: str) -> Reward:
    task = Mathematics(judge, MathematicsConfig(**settings))  # pyright: ignore[reportArgumentType]
    return task.reward(task.item(PROBLEM), response).result(DEADLINE_S)


# --- By the rules --------------------------------------------------------------------------------------------------


def test_a_response_without_a_final_answer_earns_0_and_nothing_is_compared():
    judge = ScriptedJudge()
    reward = reward_of(judge, "It is one half.")
    assert (reward.value, reward.reason, reward.parts) == (0.0, "bad_format", {"tests_passed": 0.0})
    assert (reward.verdict.problem_id, reward.verdict.message) == ("half", "no final answer in the response")
    assert judge.jobs == []


@pytest.mark.parametrize(
    ("response", "settings", "answer"),
    [
        (r"\boxed{1} no, \boxed{1/2}", {}, "1/2"),
        ("Answer: 0.5", {}, "0.5"),
        ("Answer: 0.5\n\\boxed{1/2}", {"answer": "answer_line"}, "0.5"),
        ("1/2", {"answer": "whole"}, "1/2"),
    ],
)
def test_the_judged_text_is_the_final_answer_by_the_configured_rule(response: str, settings: dict, answer: str):
    judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
    reward = reward_of(judge, response, **settings)
    assert (reward.value, reward.reason, reward.parts) == (1.0, "accepted", {"tests_passed": 1.0})
    assert (judge.jobs[0].program.source, judge.jobs[0].problem, judge.jobs[0].id) == (answer, PROBLEM, "half")


@pytest.mark.parametrize("status", [Status.WRONG_ANSWER, Status.TIME_LIMIT, Status.MEMORY_LIMIT])
def test_an_answer_that_does_not_match_earns_0_with_the_reason(status: Status):
    reward = reward_of(ScriptedJudge(verdict(status, status)), r"\boxed{1}")
    assert (reward.value, reward.reason, reward.parts) == (0.0, status, {"tests_passed": 0.0})


def test_a_fault_of_the_judge_gives_the_reward_none():
    reward = reward_of(ScriptedJudge(Verdict.none(Fault("sandbox", "no cell"))), r"\boxed{1}")
    assert (reward.value, reward.reason) == (None, "no_verdict")
    assert reward.verdict.fault == Fault("sandbox", "no cell")


def test_an_item_carries_the_prompt_of_the_template():
    plain = Mathematics(ScriptedJudge(), MathematicsConfig(template="plain")).item(PROBLEM)
    assert plain.messages == ({"role": "user", "content": PROBLEM.statement},)
    assert (plain.task, plain.id, plain.group_key) == ("mathematics", "half", "half")
    (asked,) = Mathematics(ScriptedJudge(), MathematicsConfig()).item(PROBLEM).messages
    assert asked["content"].startswith(PROBLEM.statement)
    assert r"\boxed{}" in asked["content"]


# --- By the real judge ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_judge() -> Iterator[LocalJudge]:
    try:
        judge = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
        with judge:
            judge.check(PROBLEM)
            yield judge
    except (HostError, IsolationError) as error:
        pytest.skip(f"this host cannot compare mathematics: {error}")


@pytest.mark.parametrize(
    ("response", "value", "reason"),
    [
        (r"It is \boxed{\frac{1}{2}}.", 1.0, "accepted"),
        (r"It is \boxed{0.4}.", 0.0, "wrong_answer"),
        ("x" * 1_000_000, 0.0, "bad_format"),
        (r"\boxed{" + "x" * 1_000_000 + "}", 0.0, "wrong_answer"),
        ("", 0.0, "bad_format"),
    ],
    ids=["right", "wrong", "a megabyte", "a megabyte in a box", "empty"],
)
def test_the_real_judge_rewards_final_answers(real_judge, response: str, value: float, reason: str):
    reward = reward_of(real_judge, response)
    assert (reward.value, reward.reason) == (value, reason)


def test_the_solutions_of_the_built_in_arithmetic_earn_1(real_judge):
    task = Mathematics(real_judge, MathematicsConfig())
    problems = build_arithmetic(ArithmeticConfig(train=20, heldout=200)).train
    solved = [task.reward(task.item(problem), problem.solutions[0]) for problem in problems]
    assert [future.result(DEADLINE_S).value for future in solved] == [1.0] * 20
