"""The simulated responses of one iteration: sampled, judged, and complete group by group."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum

from autoclave.planning.devices import Job, Judge, SamplerDevice
from autoclave.planning.events import Signal
from autoclave.planning.measured import Work


class Assignment(StrEnum):
    """Rule by which requests are assigned to sampler devices."""

    ROUND_ROBIN = "round_robin"
    """In turn, in the order in which they are asked for."""
    BY_GROUP = "by_group"
    """Groups in turn, so that samples of a prompt stay on one device and share what was computed of it."""
    WHEN_FREE = "when_free"
    """The device with most free slots; without any, a request waits for whichever device has one first."""


def give(jobs: Sequence[Job], samplers: Sequence[SamplerDevice], queue: deque[Job]) -> None:
    """Deal as `WHEN_FREE` says; `queue` is that of all devices."""
    free = [device.num_free for device in samplers]
    given: list[list[Job]] = [[] for _ in samplers]
    for job in jobs:
        if (most := max(free)) and not queue:
            device = free.index(most)
            given[device].append(job)
            free[device] -= 1
        else:
            queue.append(job)
    for device, own in zip(samplers, given, strict=True):
        device.add(own)


def assign(works: Sequence[Work], devices: int, assignment: Assignment) -> list[list[int]]:
    """For each device the indices of its requests, in the order in which it gets them."""
    indices = range(len(works))
    if assignment is Assignment.BY_GROUP:
        turn = {group: number for number, group in enumerate(dict.fromkeys(work.group for work in works))}
        return [[i for i in indices if turn[works[i].group] % devices == device] for device in range(devices)]
    return [list(indices[device::devices]) for device in range(devices)]


class Collected:
    """Responses of one iteration in the making; it begins when it is made."""

    def __init__(
        self,
        iteration: int,
        works: Sequence[Work],
        samplers: Sequence[SamplerDevice],
        queue: deque[Job],
        judge: Judge,
        *,
        assignment: Assignment,
        judges_at_once: bool,
    ) -> None:
        """Begin to sample; rewards start as responses are done or, without `judges_at_once`, at `judge_all`."""
        self._iteration = iteration
        self._works = works
        self._judge = judge
        self._judges_at_once = judges_at_once
        self._missing = Counter(work.group for work in works)
        self._tokens: Counter[int] = Counter()
        for work in works:
            self._tokens[work.group] += work.tokens
        self._sampled: list[int] = []
        self._complete: list[int] = []
        self._completions = [Signal() for _ in self._missing]
        self.sampled = Signal()
        if assignment is Assignment.WHEN_FREE:
            give([self._request(index) for index in range(len(works))], samplers, queue)
            return
        for device, indices in zip(samplers, assign(works, len(samplers), assignment), strict=True):
            device.add([self._request(index) for index in indices])

    @property
    def num_groups(self) -> int:
        return len(self._completions)

    @property
    def judged(self) -> Signal:
        """Set when all groups are complete."""
        return self._completions[-1]

    def complete(self, groups: int) -> Signal:
        """Set when so many groups are complete."""
        return self._completions[groups - 1]

    def tokens(self, first: int, stop: int) -> int:
        """Tokens of the groups that were complete `first`, ..., `stop` - 1."""
        return sum(self._tokens[group] for group in self._complete[first:stop])

    def judge_all(self) -> None:
        """Start the rewards of all responses, in the order in which they were sampled."""
        for index in self._sampled:
            self._begin_reward(index)

    def _request(self, index: int) -> Job:
        return Job(self._iteration, index, self._works[index].tokens, lambda: self._end_request(index))

    def _end_request(self, index: int) -> None:
        self._sampled.append(index)
        if self._judges_at_once:
            self._begin_reward(index)
        if len(self._sampled) == len(self._works):
            self.sampled.set()

    def _begin_reward(self, index: int) -> None:
        self._judge.add(Job(self._iteration, index, self._works[index].reward_s, lambda: self._end_reward(index)))

    def _end_reward(self, index: int) -> None:
        group = self._works[index].group
        self._missing[group] -= 1
        if not self._missing[group]:
            self._complete.append(group)
            self._completions[len(self._complete) - 1].set()
