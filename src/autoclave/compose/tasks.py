"""The task that the settings name."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from autoclave.config import CodeGenerationConfig, TaskConfig
from autoclave.core import Completion, FinishReason, Observation, Problem, Reward, TaskItem
from autoclave.core.futures import chained, completed
from autoclave.core.plugins import find_plugin
from autoclave.judge import Judge
from autoclave.models import encode_observation
from autoclave.rollout import NextTurn, Request
from autoclave.rollout.interface import Following
from autoclave.tasks import CodeGeneration, Mathematics, MultiTurnTask, Task

_BUILT_IN: dict[str, Callable[[Judge, Any], Task]] = {"code_generation": CodeGeneration, "mathematics": Mathematics}


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


def build_task_by_all_tests(config: TaskConfig, judge: Judge) -> Task | None:
    """The task with rewards by all tests, where `config` chooses some of them; else None."""
    if not isinstance(config, CodeGenerationConfig) or config.tests == "all":
        return None
    return CodeGeneration(judge, config.model_copy(update={"tests": "all", "reward": "binary"}))


def next_turn_of(task: Task, tokenizer: PreTrainedTokenizerBase, context: int | None) -> NextTurn | None:
    """Return what goes on with the episodes of `task`; None if all have one turn.

    An episode also ends where another turn might not fit into the `context` of the policy, in tokens.

    Raises:
        InputError: the chat template does not keep earlier turns as they are.
    """
    if not isinstance(task, MultiTurnTask) or task.turns == 1:
        return None
    asked = ({"role": "user", "content": "question"},)
    encode_observation(tokenizer, asked, asked, ended_by=None)  # before anything is sampled

    def next_turn(item: TaskItem, first: Request, turns: Sequence[Completion]) -> Future[Following]:
        if item.task != task.name or len(turns) == task.turns:
            return completed(None)
        return chained(task.observe(item, turns[-1].text), partial(_following, item, first, turns))

    def _following(
        item: TaskItem, first: Request, turns: Sequence[Completion], found: Observation | Reward | None
    ) -> Following:
        if not isinstance(found, Observation):
            return found
        ended_by = int(turns[-1].tokens[-1]) if turns[-1].finish_reason is FinishReason.STOP else None
        observed = encode_observation(tokenizer, item.messages, found.messages, ended_by=ended_by)
        tokens = np.concatenate([*(part for turn in turns for part in (turn.prompt_tokens, turn.tokens)), observed])
        if context is not None and len(tokens) + first.parameters.max_new_tokens > context:
            return None
        text = "\n\n".join(message["content"] for message in found.messages)
        return Request(tokens, first.parameters, (*first.seed, len(turns))), text

    return next_turn
