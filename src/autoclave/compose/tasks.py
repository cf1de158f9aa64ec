"""The task that the settings name."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

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
from autoclave.problems import Demonstration
from autoclave.problems.synthetic import demonstrated_attempts
from autoclave.rollout import NextTurn, Request, by_last_turn
from autoclave.rollout.checked_rewards import graded
from autoclave.rollout.interface import End, Next, OneTurn, Turns
from autoclave.tasks import CodeGeneration, Mathematics, Task

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
    written = demonstrated_attempts(config.problems, config.sft, turns=task.turns, fences=fences)
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
    if not isinstance(task, MultiTurnTask) or (task.turns == 1 and hasattr(task, "reward")):
        return None
    return Episodes(task, tokenizer, context, together)


class Episodes:
    """The `NextTurn` of a task: what its environments let the policy read becomes tokens of the next request."""

    def __init__(
        self, task: MultiTurnTask, tokenizer: PreTrainedTokenizerBase, context: int | None, together: bool
    ) -> None:
        self.task, self.tokenizer, self.context, self.together = task, tokenizer, context, together

    def most_turns(self, item: TaskItem) -> int:
        return self.task.turns if item.task == self.task.name else 1

    def __call__(self, item: TaskItem, first: Request) -> Turns:
        return _EpisodeTurns(self, item, first) if item.task == self.task.name else OneTurn()(item, first)


class _EpisodeTurns:
    """The turns of one episode, each followed by a step of its environment."""

    def __init__(self, of: Episodes, item: TaskItem, first: Request) -> None:
        self._of, self._item, self._first = of, item, first
        self._environment, self._messages = of.task.environment(item), item.messages
        self._tools: list[dict[str, Any]] = []
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
        self._messages = (*self._messages, *found.messages)
        if tools := self._environment.tools:
            if takes_tools(self._of.tokenizer):
                self._tools = [schema_of(tool) for tool in tools]
            else:
                first, *others = self._messages
                self._messages = ({**first, "content": f"{first['content']}\n\n{described(tools)}"}, *others)
        if tools or found.messages:
            prompt = encode_prompt(self._of.tokenizer, self._messages, self._tools)
            self._first = replace(self._first, prompt_tokens=prompt)
            needed = len(prompt) + self._first.parameters.max_new_tokens
            if self._of.context is not None and needed > self._of.context:
                raise InputError(
                    f"task {self._item.task!r}, item {self._item.id!r}: prompt and response may have {needed} tokens; "
                    f"the context has {self._of.context}. Fix: fewer tools, or a smaller sampler.max_new_tokens"
                )
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
        if found.is_end or len(turns) == self._of.task.turns:
            return self._end(found.ended_by if found.is_end else "turns")
        ended_by = int(turns[-1].tokens[-1]) if turns[-1].finish_reason is FinishReason.STOP else None
        observed = encode_observation(
            self._of.tokenizer, self._messages, found.messages, ended_by=ended_by, tools=self._tools
        )
        tokens = np.concatenate([*(part for turn in turns for part in (turn.prompt_tokens, turn.tokens)), observed])
        if self._of.context is not None and len(tokens) + self._first.parameters.max_new_tokens > self._of.context:
            return self._end("context")
        request = Request(tokens, self._first.parameters, request_of_turn(self._first.seed, len(turns)))
        return completed((request, _text(found)))

    def _end(self, limit: str) -> Future[Next | End]:
        return chained(self._environment.end(), lambda state: End(state, limit, self._tool_errors, self._tools_s))

    def _observation(self, done: Future[Observation]) -> Observation:
        found: object = done.result()
        if not isinstance(found, Observation):
            raise InputError(f"task {self._item.task!r}: its environment gave {found!r:.60}; must be an Observation")
        return found

    def close(self) -> None:
        self._environment.close()


def _text(found: Observation) -> str:
    return "\n\n".join(message["content"] for message in found.messages)
