"""Order in which the three stages run. A schedule yields at its iteration barrier, with everything of that iteration
applied.

Ending, logging, checkpoints and evaluation happen outside, between two iterations. Iteration i, counted from 0, learns
from batch i and publishes weights of version i + 1.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from autoclave.config import ScheduleConfig
from autoclave.core import Group
from autoclave.rollout import Collection, CollectionTimes
from autoclave.training.learned import ItemSource, Learned, joined
from autoclave.training.metrics import ThreeStages


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Iterations that are left, and what is known of them."""

    done: int
    """Iterations that were done before."""
    total: int
    """Iterations after which the run ends."""
    known: Mapping[int, Mapping[int, Group | None]] = field(default_factory=dict[int, Mapping[int, Group | None]])
    """By iteration, what was begun before: see `Collection.known`."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Result of an iteration at its barrier."""

    learned: Learned
    times: CollectionTimes
    """Of the batch that was learnt from, or that most of it was of."""
    published: Mapping[str, float]
    """Metrics of the publish."""
    ahead: Mapping[int, Collection] = field(default_factory=dict[int, Collection])
    """By iteration, the batches that were begun and not learnt from to the end."""
    is_sampled: bool = False
    """All of `ahead` is sampled, with weights that are gone: a checkpoint waits for its rewards, and holds it whole."""

    def known(self) -> dict[int, dict[int, Group | None]]:
        """Groups of `ahead` that a checkpoint holds, by iteration; see `RunProgress.known`."""
        if self.is_sampled:
            for batch in self.ahead.values():
                batch.result()
        return {number: batch.known for number, batch in self.ahead.items()}


Schedule = Callable[[ThreeStages, ItemSource, RunProgress], Iterator[Iteration]]
"""From stages and items to what happens in each iteration of a course."""


def synchronous(stages: ThreeStages, items: ItemSource, run_progress: RunProgress) -> Iterator[Iteration]:
    """Sample and judge, learn, publish; on policy."""
    for iteration in range(run_progress.done, run_progress.total):
        batch = stages.collect(items.at(iteration), iteration)
        learned = stages.learn(batch.result())
        published = stages.publish(iteration + 1)
        yield Iteration(learned, batch.times, published)


def minibatch_pipeline(
    stages: ThreeStages, items: ItemSource, run_progress: RunProgress, *, minibatches: int, is_in_order: bool
) -> Iterator[Iteration]:
    """Learn from each minibatch of whole groups as soon as it is there, while the rest of the batch is sampled.

    With `is_in_order` minibatches hold the groups that they hold in `synchronous`, else those that complete first.
    """
    for iteration in range(run_progress.done, run_progress.total):
        batch = stages.collect(items.at(iteration), iteration)
        groups = batch.in_order() if is_in_order else iter(batch)
        learned = joined([stages.learn(part) for part in _parts(groups, len(batch) // minibatches)])
        published = stages.publish(iteration + 1)
        yield Iteration(learned, batch.times, published)


def one_off_pipeline(stages: ThreeStages, items: ItemSource, run_progress: RunProgress) -> Iterator[Iteration]:
    """Learn from a batch while the next one is sampled, with weights that are one iteration old.

    The first iteration has nothing to learn from until its batch is sampled. Weights change while samplers are idle;
    judging goes on meanwhile.
    """
    batch = stages.collect(items.at(run_progress.done), run_progress.done, run_progress.known.get(run_progress.done))
    batch.wait_until_sampled()
    for iteration in range(run_progress.done, run_progress.total):
        ahead: dict[int, Collection] = {}
        if iteration + 1 < run_progress.total:
            ahead[iteration + 1] = stages.collect(items.at(iteration + 1), iteration + 1)
        learned = stages.learn(batch.result())
        for following in ahead.values():
            following.wait_until_sampled()
        published = stages.publish(iteration + 1)
        yield Iteration(learned, batch.times, published, ahead, is_sampled=True)
        batch = ahead.get(iteration + 1, batch)


def asynchronous(
    stages: ThreeStages, items: ItemSource, run_progress: RunProgress, *, max_staleness: int, is_in_order: bool
) -> Iterator[Iteration]:
    """Sample without a pause, at most `max_staleness` iterations ahead of the weights that learn.

    With `is_in_order` a batch holds the groups that it holds in `synchronous`. Else it holds those that complete
    first, and half of the staleness is for those that come late: a group of batch i is sampled with weights of version
    i - (max_staleness - late) or newer, and learnt from in iteration i + late or before.
    """
    late = 0 if is_in_order else max_staleness // 2
    early = max_staleness - late
    begun = {number: stages.collect(items.at(number), number, known) for number, known in run_progress.known.items()}
    following = run_progress.done + early if run_progress.done else 0
    for iteration in range(run_progress.done, run_progress.total):
        while following <= min(iteration + early, run_progress.total - 1):
            begun[following] = stages.collect(items.at(following), following)
            following += 1
        groups = _first_groups(begun, items.per_iteration, due=iteration - late)
        times = next(iter(begun.values())).times
        begun = {number: batch for number, batch in begun.items() if len(batch)}
        learned = stages.learn(groups)
        published = stages.publish(iteration + 1)
        yield Iteration(learned, times, published, begun)


def choose_schedule(config: ScheduleConfig, minibatches: int) -> Schedule:
    """The schedule that the settings name; `minibatches` are the optimizer steps of an iteration."""
    if config.name == "minibatch_pipeline":
        return partial(minibatch_pipeline, minibatches=minibatches, is_in_order=config.order == "prompt")
    if config.name == "asynchronous":
        in_order = config.order == "prompt"
        return partial(asynchronous, max_staleness=config.max_staleness, is_in_order=in_order)
    return {"synchronous": synchronous, "one_off_pipeline": one_off_pipeline}[config.name]


def _parts(groups: Iterable[Group], size: int) -> Iterator[list[Group]]:
    part: list[Group] = []
    for group in groups:
        part.append(group)
        if len(part) == size:
            yield part
            part = []


def _first_groups(batches: Mapping[int, Collection], count: int, *, due: int) -> Sequence[Group]:
    """The first `count` groups to complete, with all of the batches until `due`, which are waited for.

    Those of older batches come first, and of one batch in the order of its items.
    """
    event = threading.Event()
    for batch in batches.values():
        batch.notify(event)
    while True:
        event.clear()
        ready = {number: batch.num_complete for number, batch in batches.items()}
        if sum(ready.values()) >= count and all(ready[n] == len(b) for n, b in batches.items() if n <= due):
            break
        next(iter(batches.values())).wait_for(event)
    groups: list[Group] = []
    for batch in batches.values():
        groups += batch.take(count - len(groups))
    return groups
