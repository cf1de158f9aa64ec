"""The task `differing_input`: tools keep their state in a workspace, and answers are tried where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose.tasks import grader_of, next_turn_of, open_task
from autoclave.config import TrainConfig, load
from autoclave.core import Completion, Program, Rollout, SandboxFault
from autoclave.environments.tools import written_call
from autoclave.judge import Judge, JudgeJob, LocalJudge
from autoclave.models import encode_prompt
from autoclave.problems import ProblemSets
from autoclave.rollout import Collection, Request, SamplingParameters
from autoclave_environments.differing_input import DifferingInput
from tests.training_parts import ScriptedSampler, completion, tiny_policy

CONFIG = load(TrainConfig, Path(__file__).parents[2] / "recipes" / "tools.yaml").config
SETS = ProblemSets(CONFIG)
PROBLEM = SETS.heldout[0]
NUMBER = PROBLEM.id.split("-")[1]


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    with LocalJudge() as made:
        yield made


@pytest.fixture(scope="module")
def task(judge: Judge) -> Iterator[DifferingInput]:
    with open_task(CONFIG.task, judge) as made:
        assert isinstance(made, DifferingInput)
        yield made


def python(code: str) -> str:
    return written_call("python", {"code": code})


def played(task: DifferingInput, *scripts: tuple[str, ...]) -> tuple[Rollout, ...]:
    """Play one sample of the problem for each script, by the parts of a run."""
    tokenizer, item = tiny_policy().tokenizer, task.item(PROBLEM)

    def answer(asked: Request) -> Completion:
        turn = asked.seed[-1] if len(asked.seed) > 2 else 0
        text = scripts[asked.seed[1]][turn]
        return completion([7, tokenizer.eos_token_id], prompt=asked.prompt_tokens, text=text)

    first = encode_prompt(tokenizer, item.messages)
    requests = [Request(first, SamplingParameters(max_new_tokens=3), (0, n)) for n in range(len(scripts))]
    next_turn = next_turn_of(task, tokenizer, None)
    (group,) = Collection([item], [requests], ScriptedSampler(answer), grader_of(task), next_turn=next_turn).result()
    return group.rollouts


def test_the_teachers_turns_find_the_number_with_state_that_is_kept_between_calls(task: DifferingInput):
    demonstrated = next(each for each in SETS.demonstrations() if len(each.messages) == 5)
    calls = [message["content"] for message in demonstrated.messages if message["role"] == "assistant"]
    (rollout,) = played(task, (*calls, NUMBER))
    assert [turn.observed for turn in rollout.turns] == ["", "", f"{NUMBER}\n"]
    assert (rollout.reward.value, rollout.reward.reason, rollout.tool_errors) == (1.0, "accepted", 0)
    assert rollout.reward.verdict is not None
    assert rollout.reward.verdict.level == "sealed"


def test_only_a_right_answer_in_the_last_turn_earns(task: DifferingInput):
    wrong = str(int(NUMBER) + 1 if int(NUMBER) < 99 else 10)
    again = str(int(NUMBER) + 101)  # the functions differ there too, but it is none of the numbers
    call = python("1 + 1")
    scripts = ((NUMBER,), (wrong,), (again,), ("I do not know.",), (call, f"I guess {NUMBER}"), (call, call, call))
    rollouts = played(task, *scripts)
    assert [each.reward.value for each in rollouts] == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert [each.reward.reason for each in rollouts][3::2] == ["bad_format", "bad_format"]
    assert rollouts[-1].ended_by == "turns"


def test_what_a_policy_does_in_its_workspace_changes_no_reward(task: DifferingInput):
    forge = (
        "open('b.py', 'w').write('def g(x): return -1')\nopen('reward.txt', 'w').write('1')\nimport os; os.listdir()"
    )
    (rollout,) = played(task, (python(forge), "10" if NUMBER != "10" else "11"))
    assert "reward.txt" in rollout.turns[1].observed
    assert rollout.reward.value == 0.0


def test_the_judge_finds_that_the_functions_of_each_problem_differ(judge: Judge):
    for problem in SETS.heldout[:3]:
        judge.check(problem)
        assert judge.submit(JudgeJob(problem, Program(problem.solutions[0]))).result().is_accepted
        same = Program(problem.starter_code.replace("def g", "def f"))
        assert not judge.submit(JudgeJob(problem, same)).result().is_accepted


def test_a_fault_of_the_workspace_is_no_verdict(task: DifferingInput, monkeypatch: pytest.MonkeyPatch):
    def fails(self: Any, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(SandboxFault("no cell"))
        return future

    monkeypatch.setattr(type(task._workspaces), "start", fails)
    (rollout,) = played(task, (python("1"), NUMBER))
    assert (rollout.reward.value, rollout.reward.reason) == (None, "no_verdict")


def test_general_models_are_told_the_tools(judge: Judge):
    config = CONFIG.task.model_copy(update={"template": "tools"})
    with open_task(config, judge) as task:
        assert isinstance(task, DifferingInput)
        item = task.item(PROBLEM)
        assert "Answer with the number alone" in item.messages[0]["content"]
        assert {"shell", "python"} <= {tool.name for tool in task.environment(item).tools}
    assert not {problem.id for problem in SETS.train} & {problem.id for problem in SETS.heldout}
