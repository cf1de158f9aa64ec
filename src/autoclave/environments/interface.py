"""Protocols of what an episode acts on and of what grades it."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from autoclave.core import EndState, Observation, Problem, Reward, Rollout, TaskItem
from autoclave.workspaces import Tool


class Environment(Protocol):
    """The world of one episode. Methods are called one after the other, from any thread, and return at once.

    A future that fails with a FaultError is a fault: the episode neither trains nor counts. What the policy does wrong,
    such as a malformed tool call or a tool that runs out of time, is an observation.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the policy may call."""
        ...

    def start(self, item: TaskItem, seed: tuple[int, ...]) -> Future[Observation]:
        """Begin the episode of `item`; return what the policy reads first, after the messages of the item."""
        ...

    def step(self, action: str) -> Future[Observation]:
        """Act on a turn of the policy; return what it reads next."""
        ...

    def end(self) -> Future[EndState | None]:
        """End the episode: kill what runs in it, and return what it left, None without a state."""
        ...

    def close(self) -> None:
        """Release everything; may be called at any time, and twice."""


class Grader(Protocol):
    """Grades a complete rollout, where its policy has never been."""

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        """Return its reward at once; the value is None on a fault of the grader."""
        ...


@runtime_checkable
class MultiTurnTask(Protocol):
    """A task whose rollouts are episodes of up to `turns` turns."""

    name: str
    turns: int

    def item(self, problem: Problem) -> TaskItem:
        """Return the item of `problem`, with its messages."""
        ...

    def environment(self, item: TaskItem) -> Environment:
        """Return the environment of an episode of `item`, which has not begun."""
        ...

    def grade(self, rollout: Rollout) -> Future[Reward]:
        """Return the reward of an episode that ended; see `Grader`."""
        ...
