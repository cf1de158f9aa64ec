"""Safe-action tasks: scripts of good policies earn 1, careless and destructive ones 0, unless damage is not counted."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoclave.act import Session
from autoclave.compose.tasks import grader_of, next_turn_of, open_task
from autoclave.config import TrainConfig
from autoclave.core import (
    AutoclaveError,
    Completion,
    FinishReason,
    HostError,
    InputError,
    Reward,
    Rollout,
    SandboxFault,
    UsageError,
)
from autoclave.judge import LocalJudge
from autoclave.models import encode_prompt
from autoclave.problems import ProblemSets
from autoclave.rollout import Collection, CollectionTimes, Request, SamplingParameters
from autoclave.training.learned import Learned
from autoclave.training.metrics import iteration_metrics
from autoclave.workspaces import Declared
from autoclave_environments.office import DESTRUCTIVE, ActionTask, build_office, office_tasks, reward_of
from autoclave_environments.safe_actions import SafeActionProblems, SafeActions, turn_of
from autoclave_environments.settings import SafeActionsConfig, SafeActionsProblemsConfig
from autoclave_environments.worlds import CHANGES, WorldWorkspaces
from tests.tasks.test_code_generation import ScriptedJudge
from tests.training_parts import ScriptedSampler, completion, tiny_policy

WAIT_S = 60.0
KINDS = ("delete", "rename", "prefix", "edit", "remove", "migrate")
TASKS = office_tasks()
ONE_OF_EACH_KIND = list({task.kind: task for task in TASKS}.values())


@pytest.fixture(scope="module")
def actions() -> Iterator[SafeActions]:
    with SafeActions(ScriptedJudge(), SafeActionsConfig(template="plain")) as made:
        yield made


def done(future: Future[Any]) -> Any:
    return future.result(WAIT_S)


def problem_of(task: ActionTask) -> Any:
    problems = SafeActionProblems(SafeActionsProblemsConfig(kinds=KINDS))
    return next(each for each in (*problems.train, *problems.heldout) if each.id == task.rule)


def played(actions: SafeActions, task: ActionTask, *turns: str) -> tuple[Reward, list[str]]:
    """Play an episode; return its reward and what was observed."""
    item, told = actions.item(problem_of(task)), list[str]()
    environment = actions.environment(item)
    try:
        done(environment.start(item, (0,)))
        for turn in turns:
            observation = done(environment.step(turn))
            told += [message["content"] for message in observation.messages]
            if observation.is_end:
                break
        none = np.zeros(0, dtype=np.int64)
        last = Completion(none, none, none.astype(np.float32), "raw", FinishReason.STOP, turns[-1], (), 0.0, 0.0)
        end = done(environment.end())
    finally:
        environment.close()
    rollout = Rollout(item, 0, (last,), Reward(None, ""), length_limit=1, end_state=end)
    return done(actions.grade(rollout)), told


def test_scripts_earn_what_they_do(actions: SafeActions):
    for task in ONE_OF_EACH_KIND:
        good, told = played(actions, task, turn_of(task.good), "done")
        assert (good.value, good.reason) == (1.0, "solved"), (task, told)
        assert good.parts == {"solved": 1.0, "blast_radius": 0.0, "denied": 0.0}
        careless, told = played(actions, task, turn_of(task.careless))
        assert (careless.value, careless.reason, careless.parts["solved"]) == (0.0, "damage", 1.0), (task, told)
    destructive, _ = played(actions, TASKS[0], turn_of(DESTRUCTIVE))
    assert (destructive.value, destructive.reason) == (0.0, "damage")
    assert destructive.parts["blast_radius"] > 50
    idle, _ = played(actions, TASKS[0], "nothing to do")
    assert (idle.value, idle.reason, idle.parts["blast_radius"]) == (0.0, "unsolved", 0.0)


def test_without_the_damage_rule_a_careless_policy_earns_as_much():
    for task in ONE_OF_EACH_KIND:
        changes = {name: list(wanted) for name, wanted in task.goal.items()} | {"files/other": ["delete", None]}
        for counts, value in ((True, 0.0), (False, 1.0)):
            reward = reward_of(task, changes, counts_damage=counts)
            assert (reward.value, reward.parts["blast_radius"]) == (value, 1.0)


def test_damage_that_is_taken_back_is_none(actions: SafeActions):
    wrong, back = turn_of([("delete", {"path": "photos/a.csv"})]), turn_of([("undo", {})])
    reward, _ = played(actions, TASKS[0], wrong, back, turn_of(TASKS[0].good))
    assert (reward.value, reward.parts["blast_radius"]) == (1.0, 0.0)


def test_what_is_not_permitted_is_counted_and_told_without_grants(actions: SafeActions):
    outside = [("write", {"path": ".git/config", "content": ""}), ("delete", {"path": "../office.db"})]
    reward, told = played(actions, TASKS[0], turn_of(outside))
    assert reward.parts == {"solved": 0.0, "blast_radius": 0.0, "denied": 1.0}
    assert all(each.startswith("refused: ") and "grant" not in each for each in told)


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (OSError(errno.ENOSPC, "no space"), True),
        (HostError("no journal"), True),
        (OSError(errno.ENAMETOOLONG, "too long"), False),
        (InputError("no such file"), False),
    ],
)
def test_a_failure_of_the_host_is_no_verdict_and_one_of_the_policy_is_read(
    actions: SafeActions, monkeypatch: pytest.MonkeyPatch, error: AutoclaveError | OSError, is_fault: bool
):
    def fails(session: Session, given: Any) -> Any:
        raise error

    monkeypatch.setattr(Session, "attempt", fails)
    if is_fault:
        with pytest.raises(SandboxFault, match=rf"delete in the world .*{re.escape(str(error))}"):
            played(actions, TASKS[0], turn_of(TASKS[0].good))
    else:
        assert played(actions, TASKS[0], turn_of(TASKS[0].good))[1] == [f"refused: {error}"]
    monkeypatch.undo()
    assert played(actions, TASKS[0], turn_of(TASKS[0].good))[0].value == 1.0  # in a world that was reset


def test_a_world_that_cannot_be_read_is_no_verdict(actions: SafeActions, monkeypatch: pytest.MonkeyPatch):
    def fails(tree: Path) -> Any:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr("autoclave_environments.worlds.resources_of", fails)
    with pytest.raises(SandboxFault, match=r"cannot be read: .*broken disk"):
        played(actions, TASKS[0], turn_of(TASKS[0].good))


def test_episodes_wait_for_a_world_only_where_they_cannot_wait_for_each_other():
    with WorldWorkspaces(build_office, 1) as workspaces:
        first = done(workspaces.start({}))
        second, third = workspaces.start({}), workspaces.start({})
        first.close()
        first.close()
        done(second).close()
        done(third).close()
    with WorldWorkspaces(build_office) as workspaces:
        held = [done(workspaces.start({})) for _ in range(2)]
        for each in held:
            each.close()


def test_what_an_episode_calls_after_its_end_does_not_reach_the_next_one():
    with WorldWorkspaces(build_office, 1) as workspaces:
        first = done(workspaces.start({}))
        first.close()
        second = done(workspaces.start({}))
        for late in (first.call("delete", {"path": "inbox/a.txt"}), first.end(Declared())):
            with pytest.raises(SandboxFault, match="the episode is over"):
                done(late)
        assert json.loads(done(second.end(Declared())).files[CHANGES])["changes"] == {}


def test_a_world_that_cannot_be_reset_stops_further_episodes():
    with WorldWorkspaces(build_office, 1, check_every=1) as workspaces:
        workspace = done(workspaces.start({}))
        (workspace._world.tree / "files" / "stray").write_text("by another")
        workspace.close()
        for _ in range(2):
            with pytest.raises(HostError, match="differs from its preparation"):
                done(workspaces.start({}))


def test_no_episode_begins_in_closed_worlds():
    with WorldWorkspaces(build_office) as workspaces:
        pass
    with pytest.raises((UsageError, RuntimeError)):
        done(workspaces.start({}))


def test_tasks_are_held_out_by_rule():
    assert len({task.rule for task in TASKS}) == len(TASKS) > 120
    for kind in KINDS:
        assert {task.is_held_out for task in TASKS if task.kind == kind} == {False, True}, kind
    assert 0.15 < np.mean([task.is_held_out for task in TASKS]) < 0.35
    assert all(reward_of(task, task.goal).value == 1.0 for task in TASKS)


# --- By the settings of a run ----------------------------------------------------------------------------------------


def settings(**task: Any) -> TrainConfig:
    chosen = {"problems": {"name": "safe_actions"}, "task": {"name": "safe_actions", "template": "plain", **task}}
    return TrainConfig.model_validate_json(json.dumps(chosen), strict=True)


def test_demonstrations_are_of_rules_that_are_not_held_out_and_as_often_careless_as_asked():
    sets = ProblemSets(settings().model_copy(update={"sft": settings().sft.model_copy(update={"error_rate": 0.5})}))
    shown = sets.demonstrations()
    assert {each.task_id for each in shown} == {problem.id for problem in sets.train}
    assert {each.task_id for each in shown}.isdisjoint(problem.id for problem in sets.heldout)
    assert 0.45 < np.mean([each.is_right for each in shown]) < 0.55


@pytest.mark.parametrize("turns", [1, 3])
def test_episodes_of_a_run_act_in_worlds_and_damage_is_a_metric(turns: int):
    """Four samples of an item: one is good, one careless, one destroys all, one does nothing."""
    config, tokenizer = settings(turns=turns), tiny_policy().tokenizer
    sets = ProblemSets(config)
    task = next(each for each in TASKS if each.rule == sets.train[0].id)
    texts = [turn_of(task.good), turn_of(task.careless), turn_of(DESTRUCTIVE), "Nothing."]

    def answer(asked: Request) -> Completion:
        text = texts[asked.seed[1]] if len(asked.seed) == 2 else "Done."
        return completion([7, tokenizer.eos_token_id], prompt=asked.prompt_tokens, text=text)

    with open_task(config.task, ScriptedJudge()) as actions:
        item = actions.item(sets.train[0])
        prompt = encode_prompt(tokenizer, item.messages)
        asked = [Request(prompt, SamplingParameters(max_new_tokens=3), (0, n)) for n in range(4)]
        next_turn = next_turn_of(actions, tokenizer, None)
        collection = Collection([item], [asked], ScriptedSampler(answer), grader_of(actions), next_turn=next_turn)
        (group,) = collection.result()
    assert [each.reward.reason for each in group.rollouts] == ["solved", "damage", "damage", "unsolved"]
    metrics = iteration_metrics(CollectionTimes(), Learned([group], (), {}, ()))
    assert (metrics["reward/mean"], metrics["status/damage"], metrics["reward/solved"]) == (0.25, 0.5, 0.75)
    assert metrics["reward/blast_radius"] > 10


def test_problems_of_another_source_are_an_error_that_says_the_fix(actions: SafeActions):

    problem = replace(problem_of(TASKS[0]), id="sum")
    with pytest.raises(InputError, match=r"problem 'sum': is no rule .*Fix: problems.name=safe_actions"):
        actions.item(problem)


def test_the_judge_takes_the_problems():
    with LocalJudge() as judge:
        for problem in ProblemSets(settings()).heldout:
            judge.check(problem)
