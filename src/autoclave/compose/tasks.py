"""The task that the settings name."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
from transformers import PreTrainedTokenizerBase

from autoclave.config import CodeGenerationConfig, SyntheticConfig, TaskConfig, TrainConfig
from autoclave.core import Completion, FaultError, FinishReason, InputError, Observation, Problem, TaskItem
from autoclave.core.closing import Closing
from autoclave.core.futures import attempted, chained, completed, linked
from autoclave.core.plugins import find_plugin
from autoclave.core.rollout import request_of_turn
from autoclave.environments import Environment, Grader, MultiTurnTask
from autoclave.environments.tools import described, schema_of
from autoclave.judge import Judge
from autoclave.models import encode_observation, encode_prompt, takes_tools
from autoclave.problems import Demonstration, program_source
from autoclave.rollout import NextTurn, Request, by_last_turn
from autoclave.rollout.checked_rewards import graded
from autoclave.rollout.interface import End, Next, OneTurn, Turns
from autoclave.tasks import CodeGeneration, Mathematics, Task
from autoclave.workspaces import Tool

AnyTask = Task | MultiTurnTask
_BUILT_IN: dict[str, Callable[[Judge, Any], AnyTask]] = {"code_generation": CodeGeneration, "mathematics": Mathematics}

_AT_ONCE = 64
"""Demonstrated episodes that are judged together."""
_BARREN = 8
"""Times that these may give no demonstration, one after the other."""


def find_task(name: str) -> Callable[[Judge, Any], AnyTask]:
    """Return what makes the task of this name from the judge and its settings.

    Raises HostError: no installed package has it, or it cannot be loaded.
    """
    return _BUILT_IN.get(name) or find_plugin("autoclave.tasks", name, "task.name", _BUILT_IN)


@contextmanager
def open_task(config: TaskConfig, judge: Judge) -> Generator[AnyTask]:
    """Make the task of these settings; close it in the end, if it holds something."""
    task = find_task(config.name)(judge, config)
    with task if isinstance(task, Closing) else nullcontext():
        yield task


def items_of(task: AnyTask, problems: Iterable[Problem]) -> list[TaskItem]:
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
    """Return `count` demonstrations of later turns. What was read before them is what the task lets the policy read.

    Raises FaultError or InputError: many first attempts, one after the other, were not told of a failure.
    """
    task, found = find_task(config.task.name)(judge, config.task), list[Demonstration]()
    assert isinstance(task, MultiTurnTask)
    assert isinstance(config.problems, SyntheticConfig)
    fences = getattr(config.task, "extraction", "") != "whole"
    written = program_source(config.problems).demonstrated_attempts(config.sft, turns=task.turns, fences=fences)
    fault, barren = None, 0
    while len(found) < count:
        if barren == _BARREN:
            raise fault or InputError(
                f"sft.repair_share: {barren * _AT_ONCE} attempts pass the public tests. Fix: a higher sft.error_rate"
            )
        before = len(found)
        items = [(task.item(problem), attempts) for problem, attempts in islice(written, _AT_ONCE)]
        episodes = [(item, task.environment(item), attempts) for item, attempts in items]
        for turn in range(1, task.turns):
            asked = [environment.step(attempts[turn - 1].response) for _, environment, attempts in episodes]
            going_on: list[tuple[TaskItem, Environment, list[Demonstration]]] = []
            for (item, environment, attempts), future in zip(episodes, asked, strict=True):
                if isinstance(error := future.exception(), FaultError):
                    fault = error
                    continue
                if (told := future.result()).is_end:
                    continue
                answer = {"role": "assistant", "content": attempts[turn - 1].response}
                item = replace(item, messages=(*item.messages, answer, *told.messages))
                found.append(replace(attempts[turn], messages=item.messages))
                going_on.append((item, environment, attempts))
            episodes = going_on
        barren = 0 if len(found) > before else barren + 1
    return found[:count]


def build_task_by_all_tests(config: TaskConfig, judge: Judge) -> Task | None:
    """The task with rewards by all tests, where `config` chooses some of them; else None."""
    if not isinstance(config, CodeGenerationConfig) or config.tests == "all":
        return None
    return CodeGeneration(judge, config.model_copy(update={"tests": "all", "reward": "binary"}))


def grader_of(task: AnyTask) -> Grader:
    """Return what grades the rollouts of a task."""
    return partial(graded, task.grade) if isinstance(task, MultiTurnTask) else by_last_turn(task.reward)


def next_turn_of(
    task: AnyTask, tokenizer: PreTrainedTokenizerBase, context: int | None, *, together: bool = True
) -> NextTurn | None:
    """Return what goes on with the episodes of `task`; None if a response alone decides its reward.

    An episode also ends where another turn might not fit into the `context` of the policy, in tokens.
    """
    return episodes_of(task, lambda item, first: _Tokens(item, first, tokenizer, context), together)


class Context(Protocol):
    """Everything that the policy has read in an episode; requests are made from it."""

    def open(self, messages: Sequence[Mapping[str, str]], tools: Sequence[Tool]) -> Request:
        """Return the first request, after these messages."""
        ...

    def extend(self, turns: Sequence[Completion], messages: Sequence[Mapping[str, str]]) -> Request | None:
        """Return the request for another turn, after these messages; None if it might not fit."""
        ...


ContextOf = Callable[[TaskItem, Request], Context]


def episodes_of(task: AnyTask, context_of: ContextOf, together: bool = True) -> NextTurn | None:
    """Return what goes on with the episodes of `task`, in contexts of their own; see `next_turn_of`."""
    if not isinstance(task, MultiTurnTask) or (task.turns == 1 and hasattr(task, "reward")):
        return None
    return _Episodes(task, context_of, together)


class _Episodes:
    """The `NextTurn` of a task."""

    def __init__(self, task: MultiTurnTask, context_of: Callable[[TaskItem, Request], Context], together: bool) -> None:
        self._task, self._context_of, self.together = task, context_of, together

    def most_turns(self, item: TaskItem) -> int:
        return self._task.turns if item.task == self._task.name else 1

    def __call__(self, item: TaskItem, first: Request) -> Turns:
        if item.task != self._task.name:
            return OneTurn()(item, first)
        return _EpisodeTurns(self._task, item, first, self._context_of(item, first))


class _EpisodeTurns:
    """The turns of one episode, each followed by a step of its environment."""

    def __init__(self, task: MultiTurnTask, item: TaskItem, first: Request, context: Context) -> None:
        self._task, self._item, self._first, self._context = task, item, first, context
        self._environment = task.environment(item)
        self._fault: FaultError | None = None
        self._began, self._tool_errors, self._tools_s = 0.0, 0, 0.0

    def begin(self) -> Future[Next]:
        return linked(attempted(lambda: self._environment.start(self._item, self._first.seed)), self._begun)

    def _begun(self, done: Future[Observation]) -> Future[Next]:
        try:
            found = self._observation(done)
        except FaultError as fault:  # without a turn there is no rollout: it ends after its first
            self._fault = fault
            return completed((self._first, ""))
        if self._environment.tools or found.messages:
            messages = (*self._item.messages, *found.messages)
            self._first = self._context.open(messages, self._environment.tools)
        return completed((self._first, _text(found)))

    def following(self, turns: Sequence[Completion]) -> Future[Next | End]:
        if self._fault:
            raise self._fault
        self._began = time.monotonic()
        return linked(self._environment.step(turns[-1].text), partial(self._followed, turns))

    def _followed(self, turns: Sequence[Completion], done: Future[Observation]) -> Future[Next | End]:
        found = self._observation(done)
        self._tools_s += time.monotonic() - self._began
        self._tool_errors += found.errors
        if found.is_end or len(turns) == self._task.turns:
            return self._end(found.ended_by if found.is_end else "turns")
        request = self._context.extend(turns, found.messages)
        return completed((request, _text(found))) if request else self._end("context")

    def _end(self, limit: str) -> Future[Next | End]:
        return chained(self._environment.end(), lambda state: End(state, limit, self._tool_errors, self._tools_s))

    def _observation(self, done: Future[Observation]) -> Observation:
        found: object = done.result()
        if not isinstance(found, Observation):
            raise InputError(f"task {self._item.task!r}: its environment gave {found!r:.60}; must be an Observation")
        return found

    def close(self) -> None:
        self._environment.close()


class _Tokens:
    """The `Context` of a model whose tokenizer is here. `limit` is that of its context, in tokens."""

    def __init__(self, item: TaskItem, first: Request, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> None:
        self._item, self._first, self._tokenizer, self._limit = item, first, tokenizer, limit
        self._messages: Sequence[Mapping[str, str]] = item.messages
        self._tools: list[dict[str, Any]] = []

    def open(self, messages: Sequence[Mapping[str, str]], tools: Sequence[Tool]) -> Request:
        self._messages = messages
        if tools and takes_tools(self._tokenizer):
            self._tools = [schema_of(tool) for tool in tools]
        elif tools:
            first, *others = messages
            self._messages = ({**first, "content": f"{first['content']}\n\n{described(tools)}"}, *others)
        prompt = encode_prompt(self._tokenizer, self._messages, self._tools)
        needed = len(prompt) + self._first.parameters.max_new_tokens
        if self._limit is not None and needed > self._limit:
            raise InputError(
                f"task {self._item.task!r}, item {self._item.id!r}: prompt and response may have {needed} tokens; "
                f"the context has {self._limit}. Fix: fewer tools, or a smaller sampler.max_new_tokens"
            )
        return replace(self._first, prompt_tokens=prompt)

    def extend(self, turns: Sequence[Completion], messages: Sequence[Mapping[str, str]]) -> Request | None:
        ended_by = int(turns[-1].tokens[-1]) if turns[-1].finish_reason is FinishReason.STOP else None
        added = encode_observation(self._tokenizer, self._messages, messages, ended_by=ended_by, tools=self._tools)
        tokens = np.concatenate([*(part for turn in turns for part in (turn.prompt_tokens, turn.tokens)), added])
        if self._limit is not None and len(tokens) + self._first.parameters.max_new_tokens > self._limit:
            return None
        return Request(tokens, self._first.parameters, request_of_turn(self._first.seed, len(turns)))


def _text(found: Observation) -> str:
    return "\n\n".join(message["content"] for message in found.messages)
