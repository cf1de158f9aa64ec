"""Rewards of a task, checked where they enter; errors name the task and the item."""

import math
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import cast

import numpy as np

from autoclave.core import InputError, Reward, Rollout, TaskItem
from autoclave.core.futures import chained
from autoclave.environments import Grader
from autoclave.rollout.interface import RewardFunction


def started(reward: RewardFunction, item: TaskItem, text: str) -> Future[Reward]:
    with named(item):
        return _future(reward(item, text), item)


def graded(grader: Grader, rollout: Rollout) -> Future[Reward]:
    """Return the reward of a complete rollout, from 0 to 1, or None on a fault of the grader.

    Raises:
        InputError: also by the future: the grader returned anything else; the message names the item.
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
    return reward
