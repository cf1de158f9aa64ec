"""What training and evaluation ask of a task."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from autoclave.core import Reward, TaskItem


class Task(Protocol):
    """Turns responses into rewards."""

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """What `response` to `item` earns; starts at once and never blocks for long.

        The reward is None with the verdict's fault inside when the infrastructure failed.
        """
        ...
