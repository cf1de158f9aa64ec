"""What an environment lets the policy read becomes tokens of the next request; what it leaves goes to the grader."""

from concurrent.futures import Future
from typing import Any

import pytest

from autoclave.compose.tasks import grader_of, next_turn_of
from autoclave.core import EndState, Group, InputError, Observation, Reward, Rollout, SandboxFault, TaskItem
from autoclave.models import encode_observation, encode_prompt
from autoclave.rollout import Collection, CollectionTimes, Request, SamplingParameters
from autoclave.training.learned import Learned
from autoclave.training.metrics import iteration_metrics
from tests.training_parts import ScriptedSampler, completion, earned, item, settled, tiny_policy


def told(text: str, **fields: Any) -> Observation:
    return Observation(({"role": "user", "content": text},), **fields)


class Counter:
    """An environment that tells the number of the turn, and what it was begun with. `script` replaces observations."""

    tools = ()

    def __init__(self, script: dict[int, object]) -> None:
        self._script, self._steps, self.closed = script, 0, 0

    def _told(self, default: Observation) -> Future[Observation]:
        found = self._script.get(self._steps, default)
        if isinstance(found, Exception):
            raise found
        return settled(found)

    def start(self, item: TaskItem, seed: tuple[int, ...]) -> Future[Observation]:
        return self._told(told(f"begun by {seed[-1]}"))

    def step(self, action: str) -> Future[Observation]:
        self._steps += 1
        return self._told(told(f"turn {self._steps}", errors=1))

    def end(self) -> Future[EndState | None]:
        return settled(EndState({"steps": b"%d" % self._steps}))

    def close(self) -> None:
        self.closed += 1


class Counting:
    """A `MultiTurnTask`."""

    name = "task"

    def __init__(self, turns: int, script: dict[int, object] | None = None) -> None:
        self.turns, self._script, self.made = turns, script or {}, list[Counter]()

    def environment(self, item: TaskItem) -> Counter:
        self.made.append(Counter(self._script))
        return self.made[-1]

    def item(self, problem: Any) -> TaskItem:
        raise NotImplementedError

    def grade(self, rollout: Rollout) -> Future[Reward]:
        return settled(earned(int(rollout.end_state.files["steps"]) / 10))


def played(task: Counting, context: int | None = None) -> Rollout:
    tokenizer = tiny_policy().tokenizer
    sampler = ScriptedSampler(lambda asked: completion([7, tokenizer.eos_token_id], prompt=asked.prompt_tokens))
    first = Request(encode_prompt(tokenizer, item().messages), SamplingParameters(max_new_tokens=3), (0, 5))
    next_turn = next_turn_of(task, tokenizer, context)
    (group,) = Collection([item()], [[first]], sampler, grader_of(task), next_turn=next_turn).result()
    assert [each.closed > 0 for each in task.made] == [True]
    return group.rollouts[0]


def test_an_episode_begins_with_what_its_environment_tells_and_ends_with_what_it_leaves():
    rollout, tokenizer = played(Counting(3)), tiny_policy().tokenizer
    messages = (*item().messages, *told("begun by 5").messages)
    parts = [encode_prompt(tokenizer, messages)]
    for turn in (1, 2):
        end = tokenizer.eos_token_id
        parts.append(encode_observation(tokenizer, messages, told(f"turn {turn}").messages, ended_by=end))
    assert [turn.prompt_tokens.tolist() for turn in rollout.turns] == [part.tolist() for part in parts]
    assert [turn.observed for turn in rollout.turns] == ["begun by 5", "turn 1", "turn 2"]
    assert (rollout.reward.value, rollout.ended_by, rollout.tool_errors) == (0.3, "turns", 3)
    assert rollout.tools_s > 0


def test_an_episode_of_one_turn_acts_too():
    assert (played(Counting(1)).reward.value, played(Counting(1)).ended_by) == (0.1, "turns")


def test_an_environment_ends_an_episode_by_the_policys_turn_or_a_limit_of_its_own():
    for limit in ("", "calls"):
        rollout = played(Counting(5, {2: told("over", is_end=True, ended_by=limit)}))
        assert (len(rollout.turns), rollout.reward.value, rollout.ended_by) == (2, 0.2, limit)


def test_an_episode_ends_where_another_turn_might_not_fit():
    whole = played(Counting(3))
    used = sum(len(turn.prompt_tokens) + len(turn.tokens) for turn in whole.turns[:2])
    assert [len(played(Counting(3), context).turns) for context in (used + 1, used)] == [2, 1]
    assert played(Counting(3), used).ended_by == "context"


@pytest.mark.parametrize("step", [0, 2])
def test_a_fault_of_an_environment_at_its_start_or_a_step_is_no_verdict(step):
    rollout = played(Counting(3, {step: SandboxFault("no cell")}))
    assert len(rollout.turns) == max(step, 1)
    assert (rollout.reward.value, rollout.reward.verdict.fault.detail) == (None, "no cell")


def test_what_is_no_observation_is_an_error_that_names_the_task():
    with pytest.raises(InputError, match="task 'task': its environment gave None; must be an Observation"):
        played(Counting(3, {1: None}))


def test_what_happened_between_turns_is_measured_where_rollouts_may_have_several():
    rollouts = [played(Counting(3)), played(Counting(3, {1: told("over", is_end=True)}))]
    found = iteration_metrics(CollectionTimes(), Learned([Group(item(), tuple(rollouts))], (), {}, ()))
    assert (found["tools/errors"], found["ended_by/turns"]) == (1.5, 0.5)
    read = sum(len(turn.prompt_tokens) for turn in rollouts[0].turns[1:])
    assert found["tokens/observed_per_sampled"] == read / sum(rollout.num_sampled for rollout in rollouts)
