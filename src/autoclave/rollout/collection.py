"""Sampling and judging of one iteration: groups come out as they complete.

Judging of a response starts the moment it is sampled. Callbacks run on the threads of sampler and judge and only pass
things on; whoever iterates does the work of assembling groups.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from autoclave.core import Completion, Group, Reward, Rollout, TaskItem
from autoclave.rollout.interface import Request, RewardFunction, Sampler

Refill = Callable[[int, int, Group], Sequence[Request] | None]
"""From the index of an item, how often it was asked again, and its group: what to ask in its place, None to keep it."""


@dataclass(slots=True)
class CollectionTimes:
    """When the parts of a collection ended, in seconds of `time.monotonic`, and how many groups were asked again."""

    started: float = field(default_factory=time.monotonic)
    sampled: float = 0.0
    judged: float = 0.0
    refills: int = 0

    @property
    def sample_s(self) -> float:
        """Seconds until the last response was sampled."""
        return self.sampled - self.started

    @property
    def judge_tail_s(self) -> float:
        """Seconds of judging that sampling did not hide."""
        return max(0.0, self.judged - self.sampled)


class Collection:
    """The groups of one iteration, in the making. Iterate once, or ask for all with `result`."""

    def __init__(
        self,
        items: Sequence[TaskItem],
        requests: Sequence[Sequence[Request]],
        sampler: Sampler,
        reward: RewardFunction,
        *,
        refill: Refill = lambda index, times, group: None,
    ) -> None:
        """Start sampling `requests[i]`, the samples of `items[i]`, and judging them by `reward`.

        A group for which `refill` has other requests is dropped and sampled by those, as soon as it is complete.
        """
        self.times = CollectionTimes()
        self._items = items
        self._sampler = sampler
        self._reward = reward
        self._refill = refill
        self._done: queue.SimpleQueue[tuple[int, int, Completion, Reward] | BaseException] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._left = 0
        self._sizes = [0 for _ in items]
        self._submit(dict(enumerate(requests)))

    def _submit(self, requests: Mapping[int, Sequence[Request]]) -> None:
        """Sample these requests by the index of their item; there are `_sizes` of each, and they are all of it."""
        places = [(index, sample) for index, samples in requests.items() for sample in range(len(samples))]
        for index, samples in requests.items():
            self._sizes[index] = len(samples)
        with self._lock:
            self._left += len(places)
        futures = self._sampler.submit([request for samples in requests.values() for request in samples])
        for (index, sample), future in zip(places, futures, strict=True):
            future.add_done_callback(lambda done, index=index, sample=sample: self._sampled(index, sample, done))

    def _sampled(self, index: int, sample: int, future: Future[Completion]) -> None:
        try:
            completion = future.result()
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self.times.sampled = time.monotonic()
            reward = self._reward(self._items[index], completion.text)
            reward.add_done_callback(lambda done: self._judged(index, sample, completion, done))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._done.put(error)

    def _judged(self, index: int, sample: int, completion: Completion, future: Future[Reward]) -> None:
        try:
            self._done.put((index, sample, completion, future.result()))
        except BaseException as error:  # noqa: BLE001  it is raised where the collection is read
            self._done.put(error)

    def __iter__(self) -> Iterator[Group]:
        """Groups in order of completion.

        Raises:
            Exception: whatever sampling or judging raised; the rest of the collection is lost.
        """
        return (group for _, group in self._as_they_complete())

    def result(self) -> list[Group]:
        """All groups in the order of the items; waits for the last."""
        groups = dict(self._as_they_complete())
        return [groups[index] for index in range(len(self._items))]

    def _as_they_complete(self) -> Iterator[tuple[int, Group]]:
        """Groups with the index of their item; an item may be asked twice."""
        rollouts: list[dict[int, Rollout]] = [{} for _ in self._items]
        refills = [0 for _ in self._items]
        waiting = sum(size > 0 for size in self._sizes)
        while waiting:
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            index, sample, completion, reward = done
            number = refills[index] * self._sizes[index] + sample  # samples of an item are numbered through
            rollouts[index][sample] = Rollout(self._items[index], number, completion, reward)
            if len(rollouts[index]) < self._sizes[index]:
                continue
            group = Group(self._items[index], tuple(rollouts[index][i] for i in range(self._sizes[index])))
            if requests := self._refill(index, refills[index], group):
                refills[index] += 1
                self.times.refills += 1
                rollouts[index] = {}
                self._submit({index: requests})
            else:
                waiting -= 1
                yield index, group
        self.times.judged = time.monotonic()
