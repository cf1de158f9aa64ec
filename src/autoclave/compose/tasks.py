"""The task that the settings name."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from autoclave.config import CodeGenerationConfig, SyntheticConfig, TaskConfig, TrainConfig
from autoclave.core import Completion, FinishReason, InputError, Observation, Problem, Reward, TaskItem
from autoclave.core.futures import chained, completed
from autoclave.core.plugins import find_plugin
from autoclave.core.rollout import request_of_turn
from autoclave.judge import Judge
from autoclave.models import encode_observation
from autoclave.problems import Demonstration
from autoclave.problems.synthetic import demonstrated_attempts
from autoclave.rollout import NextTurn, Request
from autoclave.rollout.interface import Following
from autoclave.tasks import CodeGeneration, Mathematics, MultiTurnTask, Task

_BUILT_IN: dict[str, Callable[[Judge, Any], Task]] = {"code_generation": CodeGeneration, "mathematics": Mathematics}

_AT_ONCE = 64
"""Demonstrated episodes that are judged together."""


def find_task(name: str) -> Callable[[Judge, Any], Task]:
    """Return what makes the task of this name from the judge and its settings.

    Raises:
        HostError: no installed package has it, or it cannot be loaded.
    """
    return _BUILT_IN.get(name) or find_plugin("autoclave.tasks", name, "task.name", _BUILT_IN)


def build_task(config: TaskConfig, judge: Judge) -> Task:
    return find_task(config.name)(judge, config)


def items_of(task: Task, problems: Iterable[Problem]) -> list[TaskItem]:
    """Return the items of `problems`; an error of the task gets a note that names it and the problem."""
    items: list[TaskItem] = []
    for problem in problems:
        try:
            items.append(task.item(problem))
        except Exception as error:
            error.add_note(f"In the item of task {task.name!r} for problem {problem.id!r}")
            raise
    return items


def repair_demonstrations(config: TrainConfig, judge: Judge, count: int) -> list[Demonstration]:
    """Return `count` demonstrations of later turns. What was read before them is what the task lets the policy read."""
    task, found = build_task(config.task, judge), list[Demonstration]()
    assert isinstance(task, MultiTurnTask)
    assert isinstance(config.problems, SyntheticConfig)
    fences = getattr(config.task, "extraction", "") != "whole"
    written = demonstrated_attempts(config.problems, config.sft, turns=task.turns, fences=fences)
    while len(found) < count:
        episodes = [(task.item(problem), attempts) for problem, attempts in islice(written, _AT_ONCE)]
        for turn in range(1, task.turns):
            asked = [task.observe(item, attempts[turn - 1].response) for item, attempts in episodes]
            going_on: list[tuple[TaskItem, list[Demonstration]]] = []
            for (item, attempts), future in zip(episodes, asked, strict=True):
                if isinstance(told := future.result(), Observation):
                    answer = {"role": "assistant", "content": attempts[turn - 1].response}
                    item = replace(item, messages=(*item.messages, answer, *told.messages))
                    found.append(replace(attempts[turn], messages=item.messages))
                    going_on.append((item, attempts))
            episodes = going_on
    return found[:count]


def build_task_by_all_tests(config: TaskConfig, judge: Judge) -> Task | None:
    """The task with rewards by all tests, where `config` chooses some of them; else None."""
    if not isinstance(config, CodeGenerationConfig) or config.tests == "all":
        return None
    return CodeGeneration(judge, config.model_copy(update={"tests": "all", "reward": "binary"}))


def next_turn_of(task: Task, tokenizer: PreTrainedTokenizerBase, context: int | None) -> NextTurn | None:
    """Return what goes on with the episodes of `task`; None if all have one turn.

    An episode also ends where another turn might not fit into the `context` of the policy, in tokens.
    """
    return Episodes(task, tokenizer, context) if isinstance(task, MultiTurnTask) and task.turns > 1 else None


class Episodes:
    """The `NextTurn` of a task: what it lets the policy read becomes tokens of the next request."""

    def __init__(self, task: MultiTurnTask, tokenizer: PreTrainedTokenizerBase, context: int | None) -> None:
        self._task, self._tokenizer, self._context = task, tokenizer, context

    def most_turns(self, item: TaskItem) -> int:
        return self._task.turns if item.task == self._task.name else 1

    def __call__(self, item: TaskItem, first: Request, turns: Sequence[Completion]) -> Future[Following]:
        if len(turns) == self.most_turns(item):
            return completed(None)
        found: object = self._task.observe(item, turns[-1].text)
        if not isinstance(found, Future):
            raise InputError(f"task {item.task!r}: observe returned {found!r:.60}; it must return a Future")
        return chained(found, partial(self._following, item, first, turns))

    def _following(self, item: TaskItem, first: Request, turns: Sequence[Completion], found: object) -> Following:
        if found is None or isinstance(found, Reward):
            return found
        if not isinstance(found, Observation):
            raise InputError(
                f"task {item.task!r}: observe gave {found!r:.60}; must be an Observation, a Reward, or None at the end"
            )
        ended_by = int(turns[-1].tokens[-1]) if turns[-1].finish_reason is FinishReason.STOP else None
        observed = encode_observation(self._tokenizer, item.messages, found.messages, ended_by=ended_by)
        tokens = np.concatenate([*(part for turn in turns for part in (turn.prompt_tokens, turn.tokens)), observed])
        if self._context is not None and len(tokens) + first.parameters.max_new_tokens > self._context:
            return None
        text = "\n\n".join(message["content"] for message in found.messages)
        return Request(tokens, first.parameters, request_of_turn(first.seed, len(turns))), text
