"""Rewards of a task, checked where they enter; errors name the task and the item."""

import math
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeGuard, cast

import numpy as np

from autoclave.core import EngineFault, Fault, FaultError, InputError, Reward, Rollout, TaskItem, Verdict
from autoclave.core.errors import StalledFault, WorkerFault
from autoclave.core.futures import attempted, chained
from autoclave.environments import Grader


def by_last_turn(reward: Callable[[TaskItem, str], Future[Reward]]) -> Grader:
    """Return the grader of a task whose reward depends on the text of the last turn alone."""
    return lambda rollout: reward(rollout.item, rollout.last.text)


def no_verdict(kind: str, fault: FaultError) -> Reward:
    """Return the reward of a rollout that neither trains nor counts."""
    return Reward(None, "no_verdict", verdict=Verdict.none(Fault(kind, str(fault))))


def leaves_no_verdict(error: BaseException | None) -> TypeGuard[FaultError]:
    """Return whether an error is a fault at one rollout; those of engines and workers are faults of the run."""
    return isinstance(error, FaultError) and not isinstance(error, EngineFault | StalledFault | WorkerFault)


def started(grade: Grader, rollout: Rollout) -> Future[Reward]:
    return _future(attempted(lambda: grade(rollout)), rollout.item)


def settled(future: Future[Reward], item: TaskItem) -> Reward:
    """Return the reward in a future that is done; that of no verdict after a fault of its grader."""
    fault = future.exception()
    return no_verdict("grader", fault) if leaves_no_verdict(fault) else checked(future.result(), item)


def graded(grader: Grader, rollout: Rollout) -> Future[Reward]:
    """Return the reward of a complete rollout, from 0 to 1, or None on a fault of the grader.

    Raises InputError: also by the future: the grader returned anything else; the message names the item.
    """
    item = rollout.item
    with named(item):
        return chained(_future(grader(rollout), item), lambda reward: _within_bounds(checked(reward, item), item))


def _within_bounds(reward: Reward, item: TaskItem) -> Reward:
    if reward.value is not None and not 0 <= reward.value <= 1:
        raise InputError(
            f"task {item.task!r}, item {item.id!r}: reward = {reward.value!r}: a grader must return 0 to 1"
        )
    return reward


def _future(started: object, item: TaskItem) -> Future[Reward]:
    if not isinstance(started, Future):
        raise InputError(
            f"task {item.task!r}, item {item.id!r}: the task returned {started!r} as its reward; "
            "it must return a concurrent.futures.Future that holds an autoclave.core.Reward"
        )
    return cast("Future[Reward]", started)


@contextmanager
def named(item: TaskItem) -> Generator[None]:
    """Note on an error of a task which item it was about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"In the reward of task {item.task!r} for item {item.id!r}")
        raise


def checked(reward: object, item: TaskItem) -> Reward:
    place = f"task {item.task!r}, item {item.id!r}"
    if not isinstance(reward, Reward):
        raise InputError(f"{place}: the future holds {reward!r}; it must hold an autoclave.core.Reward")
    value, reason = cast("tuple[object, object]", (reward.value, reward.reason))
    if value is not None and not (isinstance(value, int | float | np.number) and -math.inf < value < math.inf):
        raise InputError(f"{place}: reward = {value!r}: must be a finite number, or None without a verdict")
    if not isinstance(reason, str):
        raise InputError(f"{place}: reason = {reason!r}: must be a str, such as the word of a metric status/REASON")
    for name, part in cast("dict[str, object]", reward.parts).items():
        if not (isinstance(part, int | float | np.number) and -math.inf < part < math.inf):
            raise InputError(f"{place}: parts[{name!r}] = {part!r}: must be a finite number")
    return reward
