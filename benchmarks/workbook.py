"""What sleeping stages are asked to do: where a request stands in a workload profile, and how fast its time passes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autoclave.core import TaskItem
from autoclave.planning.profile import Profile, Work
from autoclave.rollout.interface import Request, SamplingParameters

Place = tuple[int, int, int]
"""Iteration, item in it, sample of it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How a run is made smaller than its profile."""

    time: float = 200.0
    """Seconds of the profile in a real one."""
    tokens: int = 1
    """Tokens of the profile in one of a completion, so that less is sent between processes."""


class Time(Protocol):
    """Real seconds."""

    def now(self) -> float: ...

    def sleep_until(self, moment: float) -> None:
        """Return at `moment` or a little later."""
        ...


class RealTime:
    """That of the machine."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, moment: float) -> None:
        """Sleep; see `Time`."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


class Workbook:
    """Looks up what is to be done."""

    def __init__(self, profile: Profile) -> None:
        self._iterations: list[dict[int, list[Work]]] = []
        for works in profile.iterations:
            groups: dict[int, list[Work]] = {}
            for work in works:
                groups.setdefault(work.group, []).append(work)
            self._iterations.append(dict(enumerate(groups.values())))

    def sizes(self, iteration: int) -> list[int]:
        """How many samples each item of an iteration has; after the last iteration comes the first again."""
        return [len(group) for group in self._groups(iteration).values()]

    def work(self, place: Place) -> Work:
        """What is to be done at a place."""
        iteration, item, sample = place
        return self._groups(iteration)[item][sample]

    def _groups(self, iteration: int) -> dict[int, list[Work]]:
        return self._iterations[iteration % len(self._iterations)]


def items(book: Workbook, iteration: int) -> list[TaskItem]:
    """What an iteration asks."""
    ids = [f"{iteration}-{index}" for index in range(len(book.sizes(iteration)))]
    return [TaskItem("sleeping", id_, id_, ({"role": "user", "content": id_},), None) for id_ in ids]


def requests(book: Workbook, iteration: int) -> list[list[Request]]:
    """The samples of each item of an iteration; those of one item have one prompt."""

    def of(item: int, size: int) -> list[Request]:
        prompt = np.array([iteration, item], dtype=np.int64)
        return [Request(prompt, SamplingParameters(), (iteration, item, sample)) for sample in range(size)]

    return [of(item, size) for item, size in enumerate(book.sizes(iteration))]
