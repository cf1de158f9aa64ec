"""A schedule orders the three stages and does nothing else: whatever the order, every batch is learnt from once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.config import (
    AsynchronousConfig,
    MinibatchPipelineConfig,
    OneOffPipelineConfig,
    ScheduleConfig,
    SynchronousConfig,
)
from autoclave.core import Completion, Group
from autoclave.rollout import Collection, Request
from autoclave.training.learned import ItemSource, Learned, ShuffledItems
from autoclave.training.metrics import RunStages
from autoclave.training.request_ledger import RequestLedger
from autoclave.training.schedules import Iteration, RunProgress, choose_schedule
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import DEADLINE_S, completion, earned, item, request, settled

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
ALL = (
    SynchronousConfig(),
    MinibatchPipelineConfig(order="prompt"),
    MinibatchPipelineConfig(order="completion"),
    OneOffPipelineConfig(),
    *(
        AsynchronousConfig(max_staleness=staleness, order=order)
        for staleness in (0, 1, 2, 3)
        for order in ("prompt", "completion")
    ),
)
NAMES = [f"{config.name}-{'-'.join(str(value) for value in list(config.model_dump().values())[1:])}" for config in ALL]
GROUPS = 4


class RecordingStages:
    """Writes down what is asked. Responses come when the test says so, or whenever somebody waits, in a drawn order."""

    def __init__(self, draw=None) -> None:
        self.calls: list[tuple] = []
        self.version = 0
        self.waiting: list[tuple[Request, Future[Completion]]] = []
        self.learnt: list[tuple[int, Group]] = []
        self._draw = draw
        self._lock = threading.Lock()

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        futures: list[Future[Completion]] = [Future() for _ in requests]
        with self._lock:
            self.waiting += zip(requests, futures, strict=True)
        return futures

    def answer(self, count: int = 1 << 30) -> None:
        """Answer so many of those that wait, each with the version that counts now."""
        while count and self.waiting:
            with self._lock:
                place = self._draw(st.integers(0, len(self.waiting) - 1)) if self._draw else 0
                _, future = self.waiting.pop(place)
            future.set_result(replace(completion(), policy_versions=((self.version, 0, 3),)))
            count -= 1

    def collect(self, items, iteration: int, known: Mapping[int, Group | None] | None = None) -> Collection:
        self.calls.append(("collect", iteration))
        wanted = range(len(items)) if known is None else [index for index, group in known.items() if group is None]
        requests = [
            [request([2, 3], 0, iteration, i, n) for n in range(2)] if i in wanted else [] for i in range(GROUPS)
        ]
        complete = {index: group for index, group in (known or {}).items() if group}
        batch = Reading(self, items, requests, self, lambda rollout: settled(earned(1.0)), complete=complete)
        if self._draw:
            self.answer(self._draw(st.integers(0, 2 * GROUPS)))
        return batch

    def learn(self, groups: Sequence[Group]) -> Learned:
        self.calls.append(("learn", [group.item.id for group in groups]))
        self.learnt += [(self.version, group) for group in groups]
        if self._draw:
            self.answer(self._draw(st.integers(0, 2 * GROUPS)))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        return Learned(groups, [ENTRY for _ in rollouts], {"loss": 1.0}, [None for _ in rollouts])

    def publish(self, version: int) -> dict[str, float]:
        self.calls.append(("publish", version))
        self.version = version
        return {}


class Reading(Collection):
    """Who waits for a collection has the sampler answer one more request."""

    def __init__(self, stages: RecordingStages, *args, **kwargs) -> None:
        self._stages = stages
        super().__init__(*args, **kwargs)

    def _wait_for(self, is_there) -> None:
        while not is_there():
            self._stages.answer(1)
        super()._wait_for(is_there)

    def wait_for(self, event: threading.Event) -> None:
        while not event.is_set():
            self._stages.answer(1)


class ENTRY:
    weight = 1.0


def source() -> ItemSource:
    return ShuffledItems([item(name) for name in "abcdefg"], per_iteration=GROUPS, seed=0)


def run(stages, config: ScheduleConfig, run_progress: RunProgress) -> list[Iteration]:
    return list(choose_schedule(config, 2)(stages, source(), run_progress))


# --- The order of the stages ---------------------------------------------------------------------------------------


def calls_of(config: ScheduleConfig, done: int = 5, total: int = 7) -> list[tuple]:
    stages = RecordingStages()
    run(stages, config, RunProgress(done, total))
    return [call if call[0] != "learn" else ("learn", len(call[1])) for call in stages.calls]


def test_the_synchronous_schedule_samples_learns_and_publishes_in_turn_from_where_it_was():
    assert calls_of(SynchronousConfig()) == [
        ("collect", 5),
        ("learn", GROUPS),
        ("publish", 6),
        ("collect", 6),
        ("learn", GROUPS),
        ("publish", 7),
    ]


def test_a_minibatch_pipeline_learns_from_each_minibatch_and_publishes_once():
    assert calls_of(MinibatchPipelineConfig(), 5, 6) == [
        ("collect", 5),
        ("learn", GROUPS // 2),
        ("learn", GROUPS // 2),
        ("publish", 6),
    ]


def test_a_one_off_pipeline_samples_one_batch_ahead_and_none_after_the_last():
    assert calls_of(OneOffPipelineConfig()) == [
        ("collect", 5),
        ("collect", 6),
        ("learn", GROUPS),
        ("publish", 6),
        ("learn", GROUPS),
        ("publish", 7),
    ]


def test_an_asynchronous_schedule_samples_as_many_batches_ahead_as_staleness_allows():
    assert calls_of(AsynchronousConfig(max_staleness=2), 0, 4) == [
        ("collect", 0),
        ("collect", 1),
        ("collect", 2),
        ("learn", GROUPS),
        ("publish", 1),
        ("collect", 3),
        ("learn", GROUPS),
        ("publish", 2),
        ("learn", GROUPS),
        ("publish", 3),
        ("learn", GROUPS),
        ("publish", 4),
    ]


@pytest.mark.parametrize("config", ALL, ids=NAMES)
def test_an_iteration_is_yielded_when_its_weights_are_published(config):
    stages = RecordingStages()
    next(choose_schedule(config, 2)(stages, source(), RunProgress(0, 5)))
    assert stages.calls[-1] == ("publish", 1)


# --- Nothing is lost, doubled or too old ---------------------------------------------------------------------------


def staleness(config: ScheduleConfig) -> int:
    return {"asynchronous": getattr(config, "max_staleness", 0), "one_off_pipeline": 1}.get(config.name, 0)


@given(st.sampled_from(ALL), st.integers(1, 6), st.data())
@settings(max_examples=150, deadline=None)
def test_in_whatever_order_responses_come_each_request_trains_once_and_is_not_too_old(config, total, data):
    stages, ledger = RecordingStages(data.draw), RequestLedger()
    for iteration in choose_schedule(config, 2)(RunStages(stages, ledger), source(), RunProgress(0, total)):
        ledger.check(iteration.ahead.values())
    names = [rollout.request for _, group in stages.learnt for rollout in group.rollouts]
    assert sorted(names) == [(0, i, g, n) for i in range(total) for g in range(GROUPS) for n in range(2)]
    for version, group in stages.learnt:
        for rollout in group.rollouts:
            assert 0 <= version - rollout.last.policy_versions[0][0] <= staleness(config)
    counts = ledger.counts()
    assert (counts["dispatched"], counts["trained"], counts["open"]) == (len(names), len(names), 0)


@given(st.sampled_from(ALL), st.integers(1, 3), st.data())
@settings(max_examples=100, deadline=None)
def test_a_run_that_goes_on_learns_from_all_that_is_left_and_from_nothing_twice(config, done, data):
    stages, total = RecordingStages(data.draw), 5
    schedule = choose_schedule(config, 2)(stages, source(), RunProgress(0, total))
    for _ in range(done):
        iteration = next(schedule)
    known = iteration.known()
    learnt = list(stages.learnt)
    resumed = RecordingStages(data.draw)
    resumed.version = done
    run(resumed, config, RunProgress(done, total, known))
    names = [rollout.request for _, group in learnt + resumed.learnt for rollout in group.rollouts]
    assert sorted(names) == [(0, i, g, n) for i in range(total) for g in range(GROUPS) for n in range(2)]
    if isinstance(config, OneOffPipelineConfig):
        assert ("collect", done) in resumed.calls
        assert all(group for batch in known.values() for group in batch.values())  # none is sampled again


# --- Real stages ---------------------------------------------------------------------------------------------------


def learnt(
    config: ScheduleConfig, *, steps: int = 3, minibatches: int = 2
) -> tuple[dict[str, torch.Tensor], list[Iteration]]:
    """The weights after some steps of the toy task, and what happened."""
    with toy_stages(schedule=config) as stages:
        items = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        iterations = list(choose_schedule(config, 2)(stages, items, RunProgress(0, steps)))
        return dict(stages.actor.export_weights().result()), iterations


@pytest.mark.parametrize(
    "config",
    [
        AsynchronousConfig(max_staleness=0),
        AsynchronousConfig(max_staleness=0, order="completion"),
        MinibatchPipelineConfig(order="prompt"),
    ],
    ids=["asynchronous(0)", "asynchronous(0), first to complete", "minibatch_pipeline"],
)
def test_with_the_same_data_a_schedule_gives_the_weights_of_the_synchronous_one_bit_for_bit(config):
    expected, synchronous = learnt(SynchronousConfig())
    found, iterations = learnt(config)
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())
    for ours, theirs in zip(iterations, synchronous, strict=True):
        assert ours.learned.metrics == pytest.approx(theirs.learned.metrics, rel=1e-5, abs=1e-6)


def test_a_one_off_pipeline_learns_from_the_batch_of_the_iteration_before():
    """Against a loop that does so one after the other."""
    found, _ = learnt(OneOffPipelineConfig(), steps=4)
    with toy_stages() as stages:
        items = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        groups = stages.collect(items.at(0), 0).result()
        for iteration in range(4):
            following = stages.collect(items.at(iteration + 1), iteration + 1).result()
            stages.learn(groups)
            stages.publish(iteration + 1)
            groups = following
        expected = stages.actor.export_weights().result()
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())


@pytest.mark.parametrize("config", ALL, ids=NAMES)
def test_every_token_is_stamped_with_weights_that_are_not_too_old(config):
    _, iterations = learnt(config, steps=4)
    for version, iteration in enumerate(iterations):
        for group in iteration.learned.groups:
            for rollout in group.rollouts:
                ranges = rollout.last.policy_versions
                assert ranges[-1][2] == len(rollout.last.tokens)
                assert all(version - staleness(config) <= stamped <= version for stamped, *_ in ranges)
    assert np.isfinite([iteration.learned.metrics["loss"] for iteration in iterations]).all()
