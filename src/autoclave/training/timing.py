"""Durations of the stages of an iteration and of the phases of a run. Wrapped around from outside."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from autoclave.core import Group, TaskItem
from autoclave.core.timeline import Role, Timeline
from autoclave.rollout import Collection
from autoclave.training.learned import Learned


class ThreeStages(Protocol):
    """The stages that a schedule orders; see `Stages`."""

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection: ...

    def learn(self, groups: Sequence[Group]) -> Learned: ...

    def publish(self, version: int) -> Mapping[str, float]: ...


@dataclass(slots=True)
class Stopwatch:
    """Seconds by name, added up."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _started: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def time(self, name: str) -> Generator[None]:
        """Add the seconds of the block to `name`."""
        self._started[name] = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - self._started.pop(name)

    @property
    def running(self) -> list[str]:
        """The blocks that have not ended, outermost first."""
        return list(self._started)

    def so_far(self) -> dict[str, float]:
        """All seconds, those of blocks that have not ended included."""
        now = time.monotonic()
        names = {*self.seconds, *self._started}
        return {name: self.seconds.get(name, 0.0) + now - self._started.get(name, now) for name in sorted(names)}

    def take(self) -> dict[str, float]:
        """All seconds so far, which start again from 0."""
        taken = dict(self.seconds)
        self.seconds.clear()
        return taken


@dataclass(frozen=True, slots=True)
class TimedStages:
    """Stages whose `learn` and `publish` are timed, and recorded on a timeline; a collection does both itself."""

    stages: ThreeStages
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    timeline: Timeline = field(default_factory=Timeline)

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        """As the stages do."""
        return self.stages.collect(items, iteration, known)

    def learn(self, groups: Sequence[Group]) -> Learned:
        """As the stages do, timed as `learn`."""
        rollouts = sum(len(group.rollouts) for group in groups)
        with self.stopwatch.time("learn"), self.timeline.time(Role.TRAINER, "learn", rollouts=rollouts):
            return self.stages.learn(groups)

    def publish(self, version: int) -> Mapping[str, float]:
        """As the stages do, timed as `publish`."""
        with self.stopwatch.time("publish"), self.timeline.time(Role.PUBLISH, "publish", version=version):
            return self.stages.publish(version)
