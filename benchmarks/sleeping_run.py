"""The real schedules on sleeping devices: one process per sampler device, rewards and updates that sleep in the driver.

    with open_devices(8) as devices:
        run = run_schedule(Plan(schedule, samplers=3, trainers=5), profile, scale, devices)

Schedules, collections, worker groups and the sampler pool are those of a training run; only engines, judge and trainer
take the time of a workload profile in place of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from sleeping import SleepingJudge, SleepingTrainer
from sleeping_worker import SleepingWorker
from workbook import Scale, Workbook, items, requests

from autoclave.core import Completion, Group, Reward, Rollout, TaskItem
from autoclave.core.timeline import Role, Span, Timeline
from autoclave.environments import Grader
from autoclave.planning.profile import Profile
from autoclave.planning.simulation import ScheduleRun
from autoclave.rollout import Collection
from autoclave.rollout.collection import CollectionSpans
from autoclave.training.learned import ItemSource, Learned, ShuffledItems
from autoclave.training.metrics import RunStages
from autoclave.training.schedules import RunProgress, Schedule
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.spawn_executor import SpawnExecutor


@contextmanager
def open_devices(count: int) -> Generator[list[WorkerGroup[Any]]]:
    """So many sampler devices, each a process; they end with the block."""
    pools = [ResourcePool(f"device-{number}", SpawnExecutor([()])) for number in range(count)]
    try:
        with ThreadPoolExecutor() as starting:  # a process takes seconds to import a tensor library
            yield list(starting.map(lambda pool: WorkerGroup(pool, SleepingWorker, name=pool.name), pools))
    finally:
        for pool in pools:
            pool.close()


class RewardsAfterSampling:
    """A `Grader` that starts the rewards of an iteration when all of it is sampled, in that order."""

    def __init__(self, grade: Grader, book: Workbook) -> None:
        self._grade, self._book = grade, book
        self._waiting: dict[int, list[tuple[Rollout, Future[Reward]]]] = {}
        self._lock = Lock()

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        """A reward that starts with the last response of its iteration."""
        iteration, future = int(rollout.last.text.split()[0]), Future[Reward]()
        with self._lock:
            waiting = self._waiting.setdefault(iteration, [])
            waiting.append((rollout, future))
            if len(waiting) < sum(self._book.sizes(iteration)):
                return future
            del self._waiting[iteration]
        for asked, promised in waiting:
            started = self._grade(asked)
            started.add_done_callback(lambda done, promised=promised: promised.set_result(done.result()))
        return future


@dataclass(frozen=True, slots=True)
class SleepingStages:
    """Collect, learn, publish: on the sampler pool of a run, and a trainer that sleeps."""

    book: Workbook
    sampler: SamplerPool
    grade: Grader
    trainer: SleepingTrainer
    timeline: Timeline

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        """Start sampling and judging; nothing is known beforehand."""
        assert not known, "nothing is resumed here"
        spans = CollectionSpans(self.timeline, iteration + 1)
        return Collection(items, requests(self.book, iteration), self.sampler, self.grade, spans=spans)

    def learn(self, groups: Sequence[Group]) -> Learned:
        """Sleep for as long as an update from these groups takes."""
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        self.trainer.learn(sum(self.book.work(place_of(rollout.last)).tokens for rollout in rollouts))
        return Learned(groups, ledger=(), metrics={}, log_probs=())

    def publish(self, version: int) -> Mapping[str, float]:
        """Sleep for as long as a publish takes, and tell the samplers."""
        self.trainer.publish()
        self.sampler.update_weights(version, NoWeights(version)).result()
        return {}


@dataclass(frozen=True, slots=True)
class NoWeights:
    """A `WeightSource` of nothing but a version."""

    version: int

    def deliver(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> int:
        """Tell the device which version it samples with."""
        call("take_weights", self.version)
        return self.version

    def release(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> None:
        """There is nothing to let go."""


def place_of(completion: Completion) -> tuple[int, int, int]:
    """Iteration, item and sample of a response."""
    iteration, item, sample = map(int, completion.text.split())
    return iteration, item, sample


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run where."""

    schedule: Schedule
    samplers: int
    trainers: int
    ahead: int = 0
    """By how many iterations the sampler may run ahead without waiting for the last response of one."""
    rewards_after_sampling: bool = False
    mixes_batches: bool = False
    """Requests wait for whichever device is free first, in place of being dealt beforehand."""


def run_schedule(plan: Plan, profile: Profile, scale: Scale, devices: Sequence[WorkerGroup[Any]]) -> ScheduleRun:
    """Run the iterations of `profile` once; times are seconds of the profile.

    Raises:
        ValueError: its iterations have different numbers of groups.
        AssertionError: a response was not learnt from exactly once.
    """
    book = Workbook(profile)
    sizes = [len(book.sizes(number)) for number in range(len(profile.iterations))]
    if len(set(sizes)) > 1:
        raise ValueError(f"{profile.profile}: iterations have {sizes} groups; schedules need equally many of each")
    chosen = devices[: plan.samplers]
    for ready in [device.become(profile, scale) for device in chosen]:
        ready.result()
    sampler = SamplerPool(chosen, in_flight=profile.slots if plan.mixes_batches else None)
    with closing(SleepingJudge(profile, scale)) as judge, closing(sampler):
        reward = RewardsAfterSampling(judge, book) if plan.rewards_after_sampling else judge
        timeline = Timeline()
        trainer = SleepingTrainer(profile, plan.trainers, Scale(scale.time))
        stages = RunStages(SleepingStages(book, sampler, reward, trainer, timeline), timeline=timeline)
        source = ShuffledItems(items(book, 0), per_iteration=sizes[0], seed=0)
        spans = _spans(plan.schedule, stages, source, RunProgress(0, len(sizes)), scale)
    # As in the simulation, an iteration ends with its update and the time of a publish. One-off pipelining publishes
    # when samplers are idle, but after the last iteration at once: those in between would look shorter by that.
    updates = [max(s.end for s in spans if s.role is Role.TRAINER and s.step == n + 1) for n in range(len(sizes))]
    return ScheduleRun(plan.samplers, spans, [end + profile.sync_s for end in updates], plan.ahead)


def _spans(
    schedule: Schedule, stages: RunStages, source: ItemSource, run_progress: RunProgress, scale: Scale
) -> list[Span]:
    timeline, spans = stages.timeline, list[Span]()
    learnt: Counter[tuple[int, int, int]] = Counter()
    timeline.begin(1)
    start = timeline.now()
    for step, iteration in enumerate(schedule(stages, source, run_progress), start=1):
        spans += timeline.recorded().spans
        timeline.begin(step + 1)
        learnt.update(place_of(r.last) for group in iteration.learned.groups for r in group.rollouts)
    assert set(learnt.values()) == {1}, "a response was learnt from twice"
    return [
        replace(span, start=(span.start - start) * scale.time, end=(span.end - start) * scale.time) for span in spans
    ]
