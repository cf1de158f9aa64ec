"""Graders see the end state of an episode as data: programs by hidden tests. Rewards are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import (
    EndState,
    InputError,
    IsolationError,
    Problem,
    Reward,
    Rollout,
    StdinCase,
    StdinTests,
    TaskItem,
)
from autoclave.core.futures import completed
from autoclave.environments import ProgramGrader
from autoclave.judge.local import LocalJudge
from autoclave.rollout.checked_rewards import graded

SUM = Problem(
    statement="Add.", tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n"), StdinCase("2 2\n", "4\n")]), id="sum"
)
RIGHT = b"print(sum(map(int, input().split())))\n"


def rollout(files: Mapping[str, bytes], payload: Any = None, left_out: Mapping[str, str] | None = None) -> Rollout:
    item = TaskItem("repair", "one", "one", (), payload)
    return Rollout(
        item, 0, (), Reward(None, "ungraded"), length_limit=1, end_state=EndState(files, dict(left_out or {}))
    )


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


# --- Programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "value", "reason"),
    [
        ({"solution.py": RIGHT}, 1.0, "accepted"),
        ({"solution.py": b"print(3)\n"}, 0.0, "wrong_answer"),
        ({"solution.py": b"\xff"}, 0.0, "bad_format"),
        ({"other.py": RIGHT, "reward.txt": b"1.0"}, 0.0, "bad_format"),
    ],
)
def test_a_declared_file_is_judged_as_a_program(judge: LocalJudge, files: Any, value: float, reason: str):
    reward = graded(ProgramGrader(judge, "solution.py"), rollout(files, SUM)).result()
    assert (reward.value, reward.reason) == (value, reason)
    assert reward.verdict is not None
    assert reward.verdict.level == "sealed"


def test_a_file_that_was_left_out_is_named_with_the_reason(judge: LocalJudge):
    reward = ProgramGrader(judge, "a.py")(rollout({}, SUM, {"a.py": "a link"})).result()
    assert reward.value == 0
    assert reward.verdict is not None
    assert reward.verdict.message == "a.py: a link"


def test_a_share_of_the_tests_can_be_the_reward(judge: LocalJudge):
    grader = ProgramGrader(judge, "a.py", reward="fraction")
    assert grader(rollout({"a.py": b"print(3)"}, SUM)).result().value == 0.5


# --- Graders of users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1.5, -0.1, "1", 10**400])
def test_a_reward_that_is_no_number_from_0_to_1_stops_the_run(value: Any):
    with pytest.raises(InputError, match=r"task 'repair', item 'one': reward = "):
        graded(lambda rollout: completed(Reward(value, "mine")), rollout({})).result()


@pytest.mark.parametrize("value", [0, 1, 0.5, True, None])
def test_rewards_from_0_to_1_and_faults_pass(value: Any):
    assert graded(lambda rollout: completed(Reward(value, "mine")), rollout({})).result().value == value


def test_a_grader_that_returns_no_future_stops_the_run():
    wrong: Any = lambda rollout: Reward(1.0, "mine")  # noqa: E731
    with pytest.raises(InputError, match=r"must return a concurrent"):
        graded(wrong, rollout({}))
