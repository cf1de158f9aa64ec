"""When the three stages run. A schedule yields at its iteration barrier, with everything of that iteration applied.

Ending, logging, checkpoints and evaluation happen outside, between two iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from autoclave.config import ScheduleConfig
from autoclave.rollout import Collection
from autoclave.training.items import ItemSource
from autoclave.training.stages import Learned
from autoclave.training.timing import ThreeStages

Schedule = Callable[[ThreeStages, ItemSource, int], Iterator[tuple[Collection, Learned]]]
"""From stages, items and the number of iterations already done, to what happened in each further one."""


def synchronous(stages: ThreeStages, items: ItemSource, done: int) -> Iterator[tuple[Collection, Learned]]:
    """Sample and judge, learn, publish; on policy."""
    for iteration in count(done):
        collection = stages.collect(items.at(iteration), iteration)
        learned = stages.learn(collection.result())
        stages.publish(iteration + 1)
        yield collection, learned


def choose_schedule(config: ScheduleConfig) -> Schedule:
    """The schedule that the settings name."""
    return {"synchronous": synchronous}[config.name]
