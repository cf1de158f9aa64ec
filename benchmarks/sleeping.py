"""Stages that sleep for as long as a workload profile says, so that schedules are measured without any devices.

    SleepingEngine    an `Engine` that takes the time of one sampler device
    SleepingJudge     a reward function with so many slots for all of it
    SleepingTrainer   learns and publishes

A profile's seconds pass `Scale.time` times as fast. A request is known by the end of its seed, (iteration, item,
sample), as `Stages.collect` makes it, also in later turns; its response says the same in text, and is as long as the
profile says.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from workbook import Place, RealTime, Scale, Time, Workbook

from autoclave.core import Completion, FinishReason, Reward, Rollout
from autoclave.core.rollout import TURN
from autoclave.planning.profile import Profile
from autoclave.rollout.interface import EngineStats, Request

NEXT_TO_NOTHING_S = 1e-9
"""Rounding of times; a request that is done up to this is done."""


@dataclass(slots=True)
class _Asked:
    number: int
    request: Request
    place: Place
    length: int
    submitted_at: float
    batch: int
    versions: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Versions, and the token from which on each sampled."""
    began: float = 0.0
    """What `SleepingEngine` counted when it started."""
    started_at: float | None = None


class SleepingEngine:
    """An `Engine` that does nothing for as long as one sampler device of the profile takes.

    The device goes on between two steps, as one does that an engine drives from a thread of its own, and nothing is
    lost by waking up late: what has passed by a moment follows from that moment alone, and a completion says when the
    device was done with it, not when that was noticed. With `stops_between_steps` time
    passes in `step` only. A step ends with the first request that is done. Without `mixes_batches`, requests of several
    calls of `add` are not sampled side by side.
    """

    def __init__(
        self,
        profile: Profile,
        scale: Scale,
        *,
        time: Time | None = None,
        stops_between_steps: bool = False,
        mixes_batches: bool = True,
    ) -> None:
        self._profile, self._scale, self._mixes, self._batch = profile, scale, mixes_batches, 0
        self._time = time or RealTime()
        self._stops = stops_between_steps
        self._book = Workbook(profile)
        self._waiting: deque[_Asked] = deque()
        self._running: list[tuple[float, int, _Asked]] = []  # what is counted at its end, number, what was asked
        self._over: list[tuple[int, Completion]] = []
        self._counted = 0.0  # tokens that a request would have which had run from the beginning
        self._since = self._time.now()
        self._late_s = 0.0  # how long ago the moment was that is being caught up with
        self._version = self._prompt_tokens = self._sampled_tokens = 0

    def add(self, requests: Mapping[int, Request]) -> None:
        """See `Engine`."""
        self._catch_up()
        self._batch += not self._mixes
        for number, request in requests.items():
            iteration, item, sample = request.seed[:-2][-3:] if TURN in request.seed else request.seed[-3:]
            place = (iteration, item, sample)
            length = self._book.work(place).tokens
            self._waiting.append(_Asked(number, request, place, length, time.time(), self._batch))
        self._fill()

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """Sleep until the first request is done, `seconds` at most; see `Engine`."""
        if self._stops:
            self._since = self._time.now()
        deadline = self._time.now() + seconds
        self._pass_to(self._time.now())
        while self._running and not self._over and self._since < deadline:
            self._time.sleep_until(min(deadline, self._since + self._left_s() / self._scale.time))
            self._pass_to(self._time.now())
        over, self._over = self._over, []
        return over

    def update_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Stamp what comes with `version`; see `Engine`. It takes no time here: that is the trainer's."""
        self._catch_up()
        self._version = version
        for _, _, asked in self._running:
            asked.versions.append((version, int(self._counted - asked.began)))

    @property
    def stats(self) -> EngineStats:
        """As it is now."""
        return EngineStats(len(self._running), len(self._waiting), self._prompt_tokens, self._sampled_tokens)

    def close(self) -> None:
        """Forget all requests."""
        self._waiting.clear()
        self._running.clear()

    def _catch_up(self) -> None:
        if not self._stops:
            self._pass_to(self._time.now())

    def _left_s(self) -> float:
        """Seconds of the profile until the next request is done."""
        return max(0.0, self._running[0][0] - self._counted) * self._profile.token_s(len(self._running))

    def _pass_to(self, now: float) -> None:
        """Do what is done by `now`; a place that becomes free is filled at that very moment."""
        left, self._since = (now - self._since) * self._scale.time, now
        while self._running and self._left_s() <= left + NEXT_TO_NOTHING_S:
            left -= self._left_s()
            self._late_s = max(0.0, left) / self._scale.time
            self._counted = self._running[0][0]
            while self._running and self._running[0][0] <= self._counted:
                asked = heapq.heappop(self._running)[2]
                self._finish(asked)
            self._fill()
        self._late_s = 0.0
        if self._running:
            self._counted += max(0.0, left) / self._profile.token_s(len(self._running))

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._profile.slots:
            if self._running and self._running[0][2].batch != self._waiting[0].batch:
                break
            asked = self._waiting.popleft()
            asked.began, asked.started_at = self._counted, time.time() - self._late_s
            asked.versions.append((self._version, 0))
            self._prompt_tokens += len(asked.request.prompt_tokens)
            heapq.heappush(self._running, (self._counted + asked.length, asked.number, asked))

    def _finish(self, asked: _Asked) -> None:
        self._sampled_tokens += asked.length
        count = -(-asked.length // self._scale.tokens)
        stops = [*(start // self._scale.tokens for _, start in asked.versions[1:]), count]
        starts = [start // self._scale.tokens for _, start in asked.versions]
        ranges = zip((version for version, _ in asked.versions), starts, stops, strict=False)
        completion = Completion(
            prompt_tokens=asked.request.prompt_tokens,
            tokens=np.zeros(count, dtype=np.int64),
            log_probs=np.zeros(count, dtype=np.float32),
            log_prob_kind="raw",
            finish_reason=FinishReason.STOP,
            text=" ".join(map(str, asked.place)),
            policy_versions=tuple((version, start, stop) for version, start, stop in ranges if start < stop),
            submitted_at=asked.submitted_at,
            finished_at=time.time() - self._late_s,
            started_at=asked.started_at,
        )
        self._over.append((asked.number, completion))


class Slots:
    """When rewards end that are taken first come, first served."""

    def __init__(self, count: int) -> None:
        self._free_at = [float("-inf")] * count

    def take(self, now: float, seconds: float) -> float:
        """When a reward that takes `seconds` and is asked for `now` ends; `now` never goes back."""
        end = max(now, heapq.heappop(self._free_at)) + seconds
        heapq.heappush(self._free_at, end)
        return end


class SleepingJudge:
    """A `Grader` whose rewards take the profile's time on its slots. A thread keeps the time of them all."""

    def __init__(self, profile: Profile, scale: Scale) -> None:
        self._book, self._scale = Workbook(profile), scale
        self._slots = Slots(profile.judge_slots)
        self._changed = threading.Condition()
        self._ends: list[tuple[float, int, Future[Reward], Reward]] = []
        self._asked = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._keep_time, name="sleeping-judge", daemon=True)
        self._thread.start()

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        """A reward for the response, whose text names it: 1 for every other sample."""
        iteration, index, sample = map(int, rollout.last.text.split())
        seconds = self._book.work((iteration, index, sample)).reward_s / self._scale.time
        future: Future[Reward] = Future()
        with self._changed:
            self._asked += 1
            end = self._slots.take(time.monotonic(), seconds)
            heapq.heappush(self._ends, (end, self._asked, future, Reward(float(sample % 2), "slept")))
            self._changed.notify()
        return future

    def close(self) -> None:
        """End the thread; rewards that are not done never are."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _keep_time(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                left = self._ends[0][0] - time.monotonic() if self._ends else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                _, _, future, reward = heapq.heappop(self._ends)
            future.set_result(reward)  # not under the lock: callbacks may ask for rewards


class SleepingTrainer:
    """Learns and publishes for as long as `devices` devices of the profile take."""

    def __init__(
        self,
        profile: Profile,
        devices: int,
        scale: Scale,
        *,
        time: Time | None = None,
    ) -> None:
        self._profile, self._devices, self._scale = profile, devices, scale
        self._time = time or RealTime()

    def learn(self, tokens: int) -> None:
        """Sleep as an update by `tokens` tokens of completions takes."""
        self._sleep(self._profile.train_s(tokens * self._scale.tokens, self._devices))

    def publish(self) -> None:
        """Sleep as a publish takes."""
        self._sleep(self._profile.sync_s)

    def _sleep(self, seconds: float) -> None:
        self._time.sleep_until(self._time.now() + seconds / self._scale.time)
