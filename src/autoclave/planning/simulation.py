"""Simulation of a schedule's events on given devices: the least time that an ideal run takes.

The schedules are those of `training/schedules.py`, with nothing lost between two stages: rewards start when a response
is done, the next iteration is sampled as soon as its weights are there and the sampler is free (also while rewards of
the last are outstanding), and a publish takes the trainer's time but not the sampler's. Nothing here measures anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from autoclave.core import ConfigError
from autoclave.core.timeline import Span
from autoclave.planning.collected import Assignment, Collected
from autoclave.planning.devices import Job, Judge, SamplerDevice, Trainer
from autoclave.planning.events import Clock, Process, Signal, start
from autoclave.planning.measured import Profile
from autoclave.planning.schedule_run import ScheduleRun


class ScheduleName(StrEnum):
    """Order in which the three stages run; in order of how far samples may be from the policy that learns from them."""

    SYNCHRONOUS = "synchronous"
    """Sample and judge, learn, publish."""
    MINIBATCH_PIPELINE = "minibatch_pipeline"
    """Learn from each minibatch of whole groups, in order of completion, while the others are sampled."""
    ONE_OFF_PIPELINE = "one_off_pipeline"
    """The sampler is one iteration ahead of the trainer."""
    ASYNCHRONOUS = "asynchronous"
    """The sampler is at most so many iterations ahead, and does not wait for the last response of one."""


@dataclass(frozen=True, slots=True)
class Split:
    """Devices of sampler and trainer; `is_shared` if they are the same ones, which take turns."""

    samplers: int
    trainers: int
    is_shared: bool = False

    @staticmethod
    def time_sharing(devices: int) -> Split:
        """All devices sample, then all learn."""
        return Split(devices, devices, is_shared=True)

    def __str__(self) -> str:
        return f"{self.samplers} shared" if self.is_shared else f"{self.samplers}:{self.trainers}"


def simulate(
    profile: Profile,
    schedule: ScheduleName,
    split: Split,
    *,
    max_staleness: int = 1,
    assignment: Assignment = Assignment.ROUND_ROBIN,
    rewards_after_sampling: bool = False,
) -> ScheduleRun:
    """Run the iterations of `profile` once.

    Args:
        profile: the work and the speed of devices; its number of devices is not looked at.
        schedule: the schedule.
        split: the devices.
        max_staleness: of `asynchronous`: by how many updates the weights that sample may be behind.
        assignment: which sampler device gets which request; each iteration begins with the first device.
        rewards_after_sampling: of `synchronous`: rewards start when all of an iteration is sampled.

    Raises:
        ConfigError: the split has no device for a role, or shares devices that the schedule uses at the same time.
    """
    _check(schedule, split, max_staleness)
    run = _Run(profile, split, assignment)
    processes: Mapping[ScheduleName, Callable[[], Process]] = {
        ScheduleName.SYNCHRONOUS: lambda: _synchronous(run, rewards_after_sampling=rewards_after_sampling),
        ScheduleName.MINIBATCH_PIPELINE: lambda: _minibatch_pipeline(run),
        ScheduleName.ONE_OFF_PIPELINE: lambda: _ahead(run, 1, waits_for_last=True),
        ScheduleName.ASYNCHRONOUS: lambda: _ahead(run, max_staleness, waits_for_last=False),
    }
    ended = start(processes[schedule]())
    run.clock.run()
    assert ended.is_set, "a schedule waits for what nobody does"
    ahead = max_staleness if schedule is ScheduleName.ASYNCHRONOUS else 0
    return ScheduleRun(split.samplers, tuple(run.spans), tuple(run.ends), ahead)


def _check(schedule: ScheduleName, split: Split, max_staleness: int) -> None:
    if split.samplers < 1 or split.trainers < 1:
        raise ConfigError(f"split {split}: sampler and trainer need at least one device each")
    if max_staleness < 0:
        raise ConfigError(f"max_staleness = {max_staleness}: must be at least 0")
    is_serial = schedule is ScheduleName.SYNCHRONOUS or (schedule is ScheduleName.ASYNCHRONOUS and not max_staleness)
    if split.is_shared and not is_serial:
        raise ConfigError(
            f"split {split}: {schedule} samples and learns at the same time, which devices that take turns cannot; "
            "divide them (such as Split(3, 5)), or take synchronous"
        )


class _Run:
    """Devices that the processes of a schedule share."""

    def __init__(self, profile: Profile, split: Split, assignment: Assignment) -> None:
        self.profile = profile
        self.clock = Clock()
        self.spans: list[Span] = []
        self.ends: list[float] = []
        self.trainer = Trainer(split.trainers, profile, self.clock, self.spans)
        self._queue: deque[Job] = deque()
        devices = range(split.samplers)
        self._samplers = [SamplerDevice(n, profile, self.clock, self.spans, self._queue) for n in devices]
        self._judge = Judge(profile.judge_slots, self.clock, self.spans)
        self._assignment = assignment

    @property
    def iterations(self) -> range:
        return range(len(self.profile.iterations))

    def collect(self, iteration: int, *, judges_at_once: bool = True) -> Collected:
        return Collected(
            iteration,
            self.profile.iterations[iteration],
            self._samplers,
            self._queue,
            self._judge,
            assignment=self._assignment,
            judges_at_once=judges_at_once,
        )

    def publish(self, iteration: int) -> Process:
        yield self.trainer.publish(iteration)
        self.ends.append(self.clock.now)


def _synchronous(run: _Run, *, rewards_after_sampling: bool) -> Process:
    for iteration in run.iterations:
        collected = run.collect(iteration, judges_at_once=not rewards_after_sampling)
        yield collected.sampled
        if rewards_after_sampling:
            collected.judge_all()
        yield collected.judged
        yield run.trainer.learn(iteration, collected.tokens(0, collected.num_groups))
        yield from run.publish(iteration)


def _minibatch_pipeline(run: _Run) -> Process:
    parts = run.profile.mini_batches
    for iteration in run.iterations:
        collected = run.collect(iteration)
        bounds = [round(collected.num_groups * part / parts) for part in range(parts + 1)]
        for first, stop in pairwise(bounds):
            if first < stop:
                yield collected.complete(stop)
                yield run.trainer.learn(iteration, collected.tokens(first, stop))
        yield from run.publish(iteration)


def _ahead(run: _Run, max_staleness: int, *, waits_for_last: bool) -> Process:
    """Iteration i is sampled by weights that have learnt from iteration i - 1 - max_staleness, or from a later one.

    `waits_for_last`: weights change only while samplers are idle; otherwise the next iteration fills the slots that
    the last responses of this one leave.
    """
    published = [Signal() for _ in run.iterations]
    begun = [Signal() for _ in run.iterations]
    collections: list[Collected] = []

    def sample() -> Process:
        for iteration in run.iterations:
            if iteration > max_staleness:
                yield published[iteration - 1 - max_staleness]
            collections.append(run.collect(iteration))
            begun[iteration].set()
            if waits_for_last:
                yield collections[iteration].sampled

    start(sample())
    for iteration in run.iterations:
        yield begun[iteration]
        collected = collections[iteration]
        yield collected.judged
        yield run.trainer.learn(iteration, collected.tokens(0, collected.num_groups))
        yield from run.publish(iteration)
        published[iteration].set()
