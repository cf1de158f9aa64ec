"""Simulated devices: samplers whose requests slow each other down, the judge's slots, the trainer."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoclave.core.timeline import Role, Span
from autoclave.planning.events import Clock, Signal
from autoclave.planning.measured import Profile


@dataclass(frozen=True, slots=True)
class Job:
    """A request or a reward: which it is, how much there is to do, and what happens when that is done."""

    iteration: int
    request: int
    amount: float
    """Tokens of a request, seconds of a reward."""
    done: Callable[[], None]

    def span(self, role: Role, start: float, end: float, lane: int, slot: int = 0) -> Span:
        """Interval in which `role` did it, with device and slot."""
        attributes = {"request": self.request, "slot": slot}
        return Span(role, str(self.request), start, end, self.iteration + 1, str(lane), attributes)


class SamplerDevice:
    """Runs up to `slots` requests at once. The others wait in order: its own, then those in the queue of all devices.

    All that run have the same speed, so one number, the tokens that a request would have had by now if it had run from
    the start, says how far each is: a request that starts at p with n tokens ends at p + n. Between two events the
    speed does not change.
    """

    def __init__(self, number: int, profile: Profile, clock: Clock, spans: list[Span], queue: deque[Job]) -> None:
        self._number = number
        self._queue = queue
        self._profile = profile
        self._clock = clock
        self._spans = spans
        self._waiting: deque[Job] = deque()
        self._running: list[tuple[float, int, int, float, Job]] = []  # end in tokens, order, slot, start in s, job
        self._free = list(range(profile.slots))
        self._order = 0
        self._tokens = 0.0
        self._since = 0.0
        self._plan = 0

    @property
    def num_free(self) -> int:
        """Slots that nobody has or waits for."""
        return max(0, len(self._free) - len(self._waiting))

    def add(self, jobs: Sequence[Job]) -> None:
        """Take on requests, in order."""
        self._pass_time()
        self._waiting.extend(jobs)
        self._fill()

    def _pass_time(self) -> None:
        if self._running:
            self._tokens += (self._clock.now - self._since) / self._profile.token_s(len(self._running))
        self._since = self._clock.now

    def _fill(self) -> None:
        """Start what there are slots for, and plan the next end."""
        while self._free and (self._waiting or self._queue):
            job = (self._waiting or self._queue).popleft()
            slot, self._order = heapq.heappop(self._free), self._order + 1
            heapq.heappush(self._running, (self._tokens + job.amount, self._order, slot, self._clock.now, job))
        self._plan += 1
        if self._running:
            left = max(0.0, self._running[0][0] - self._tokens)
            plan = self._plan
            when = self._clock.now + left * self._profile.token_s(len(self._running))
            self._clock.at(when, lambda: self._end_first(plan))

    def _end_first(self, plan: int) -> None:
        if plan != self._plan:  # something was added since
            return
        self._since = self._clock.now
        self._tokens = self._running[0][0]  # exactly, so that requests of one length end at one moment
        ended: list[Job] = []
        while self._running and self._running[0][0] <= self._tokens:
            _, _, slot, start, job = heapq.heappop(self._running)
            heapq.heappush(self._free, slot)
            self._spans.append(job.span(Role.SAMPLER, start, self._clock.now, self._number, slot))
            ended.append(job)
        self._fill()
        for job in ended:
            job.done()


class Judge:
    """Slots that take rewards first come, first served."""

    def __init__(self, slots: int, clock: Clock, spans: list[Span]) -> None:
        self._clock = clock
        self._spans = spans
        self._free = list(range(slots))
        self._waiting: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Compute a reward as soon as it is its turn."""
        self._waiting.append(job)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self._free:
            job, slot, start = self._waiting.popleft(), heapq.heappop(self._free), self._clock.now
            self._clock.at(start + job.amount, lambda job=job, slot=slot, start=start: self._end(job, slot, start))

    def _end(self, job: Job, slot: int, start: float) -> None:
        heapq.heappush(self._free, slot)
        self._spans.append(job.span(Role.JUDGE, start, self._clock.now, slot))
        self._fill()
        job.done()


class Trainer:
    """Does one update after the other, and publishes."""

    def __init__(self, devices: int, profile: Profile, clock: Clock, spans: list[Span]) -> None:
        self._devices = devices
        self._profile = profile
        self._clock = clock
        self._spans = spans

    def learn(self, iteration: int, tokens: int) -> Signal:
        """Begin an update; set when it is done."""
        return self._work(Role.TRAINER, iteration, self._profile.train_s(tokens, self._devices))

    def publish(self, iteration: int) -> Signal:
        """Begin to send weights to the samplers; set when they have them."""
        return self._work(Role.PUBLISH, iteration, self._profile.sync_s)

    def _work(self, role: Role, iteration: int, seconds: float) -> Signal:
        start = self._clock.now
        self._spans.append(Span(role, str(role), start, start + seconds, iteration + 1))
        return self._clock.after(seconds)
