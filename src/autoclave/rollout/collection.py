"""Sampling and judging of one iteration: groups come out as they complete.

Judging of a response starts the moment it is sampled. Callbacks run on the threads of sampler and judge and only pass
things on; whoever iterates does the work of assembling groups.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from autoclave.core import Completion, Group, Reward, Rollout, TaskItem
from autoclave.rollout.interface import Request, RewardFunction, Sampler


@dataclass(slots=True)
class CollectionTimes:
    """When the parts of a collection ended, in seconds of `time.monotonic`."""

    started: float = field(default_factory=time.monotonic)
    sampled: float = 0.0
    judged: float = 0.0

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
    ) -> None:
        """Start sampling `requests[i]`, the samples of `items[i]`, and judging them by `reward`."""
        self.times = CollectionTimes()
        self._items = items
        self._sizes = [len(samples) for samples in requests]
        self._reward = reward
        self._done: queue.SimpleQueue[tuple[int, int, Completion, Reward] | BaseException] = queue.SimpleQueue()
        self._lock = threading.Lock()
        places = [(index, sample) for index, samples in enumerate(requests) for sample in range(len(samples))]
        self._left = len(places)
        futures = sampler.submit([request for samples in requests for request in samples])
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
        for _ in range(sum(self._sizes)):
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            index, sample, completion, reward = done
            rollouts[index][sample] = Rollout(self._items[index], sample, completion, reward)
            if len(rollouts[index]) == self._sizes[index]:
                yield index, Group(self._items[index], tuple(rollouts[index][i] for i in range(self._sizes[index])))
        self.times.judged = time.monotonic()
