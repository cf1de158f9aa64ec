"""Calls on one pool are serial, calls on two overlap, and what a worker raises reaches the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np
import pytest

from autoclave.core import ConfigError, FaultError
from autoclave.workers import Batch, Dispatch, NoReference, ResourcePool, WorkerGroup, register
from autoclave.workers.dispatch import join, split
from tests.training_parts import DEADLINE_S, settled

pytestmark = pytest.mark.timeout(DEADLINE_S)


class Recorder:
    """Says which thread it runs on, and does what it is handed."""

    def __init__(self) -> None:
        self.built_on = threading.current_thread()

    @register(Dispatch.ONE_TO_ALL)
    def do(self, action, *args):
        return action(*args)

    @register(Dispatch.ONE_TO_ALL)
    def threads(self):
        return self.built_on, threading.current_thread()

    @register(Dispatch.DATA_PARALLEL)
    def marked(self, batch: Batch) -> Batch:
        return batch.with_rows(seen=np.ones(len(batch)))

    def unregistered(self) -> None: ...


@pytest.fixture
def pools() -> Iterator[tuple[ResourcePool, ResourcePool]]:
    made = ResourcePool("first"), ResourcePool("second")
    yield made
    for pool in made:
        pool.close()


@pytest.fixture
def group(pools) -> WorkerGroup[Recorder]:
    return WorkerGroup(pools[0], Recorder)


# --- Where and when calls run --------------------------------------------------------------------------------------


def test_workers_are_built_and_called_on_the_thread_of_their_pool(group):
    built_on, called_on = group.threads().result()
    assert built_on is called_on
    assert called_on.name.startswith("pool-first")


def test_calls_on_one_pool_run_one_after_the_other_in_order(pools, group):
    neighbour = WorkerGroup(pools[0], Recorder)
    inside = threading.Lock()
    order: list[int] = []

    def enter(number: int) -> None:
        assert inside.acquire(blocking=False), "two calls of one pool overlap"
        order.append(number)
        inside.release()

    calls = [(group, neighbour)[number % 2].do(enter, number) for number in range(200)]
    for call in calls:
        call.result(DEADLINE_S)
    assert order == list(range(200))


def test_calls_on_two_pools_overlap(pools, group):
    other = WorkerGroup(pools[1], Recorder)
    meeting = threading.Barrier(2)
    first, second = group.do(meeting.wait, DEADLINE_S), other.do(meeting.wait, DEADLINE_S)
    assert {first.result(DEADLINE_S), second.result(DEADLINE_S)} == {0, 1}


def test_a_call_returns_at_once(group):
    go_on = threading.Event()
    call = group.do(go_on.wait, DEADLINE_S)
    assert not call.done()
    go_on.set()
    assert call.result(DEADLINE_S)


def test_a_closed_pool_drops_what_waits_and_takes_nothing_more():
    pool = ResourcePool("closing")
    go_on, started = threading.Event(), threading.Event()
    running = pool.submit(lambda: started.set() or go_on.wait(DEADLINE_S))
    waiting = pool.submit(lambda: None)
    assert started.wait(DEADLINE_S)
    closing = threading.Thread(target=pool.close)
    closing.start()
    while not waiting.cancelled():
        closing.join(0.001)
    go_on.set()
    closing.join(DEADLINE_S)
    assert running.result(0)
    with pytest.raises(RuntimeError):
        pool.submit(lambda: None)


# --- Arguments and results -----------------------------------------------------------------------------------------


def test_futures_among_the_arguments_are_resolved_where_the_worker_is(pools, group):
    other = WorkerGroup(pools[1], Recorder)
    resolved_on: list[threading.Thread] = []

    class Watched(Future):
        def result(self, timeout: float | None = None):
            resolved_on.append(threading.current_thread())
            return super().result(timeout)

    argument = Watched()
    call = other.do(str.upper, argument)
    argument.set_result("text")
    assert call.result(DEADLINE_S) == "TEXT"
    assert resolved_on == [other.threads().result()[1]]


def test_the_result_of_one_group_can_be_the_argument_of_another(pools, group):
    other = WorkerGroup(pools[1], Recorder)
    chain = other.do(sum, group.do(sorted, (3, 1, 2)))
    assert chain.result(DEADLINE_S) == 6


def test_futures_by_name_are_resolved_too(pools):
    assert pools[0].submit(int, "11", base=settled(2)).result(DEADLINE_S) == 3


# --- Failures ------------------------------------------------------------------------------------------------------


def test_an_exception_of_a_worker_reaches_the_caller_with_its_type(group):
    def fail() -> None:
        raise FaultError("gradient norm = nan")

    with pytest.raises(FaultError, match="gradient norm = nan"):
        group.do(fail).result(DEADLINE_S)
    assert group.do(int).result(DEADLINE_S) == 0  # the pool lives on


def test_an_exception_in_an_argument_reaches_the_caller(group):
    with pytest.raises(OSError, match="lost"):
        group.do(str, settled(OSError("lost"))).result(DEADLINE_S)


def test_an_exception_while_building_a_worker_is_raised_where_the_group_is_made(pools):
    def fail() -> Recorder:
        raise FaultError("no weights")

    with pytest.raises(FaultError, match="no weights"):
        WorkerGroup(pools[0], fail)


@pytest.mark.parametrize("name", ["unregistered", "nonsense"])
def test_only_registered_methods_can_be_called(group, name):
    with pytest.raises(AttributeError, match=f"Recorder.{name} is not a registered worker method"):
        getattr(group, name)


@pytest.mark.parametrize("devices", [0, 2])
def test_more_than_one_device_inline_is_refused_with_the_mend(devices):
    with pytest.raises(ConfigError, match=rf"pools\.main\.devices = {devices}: .* use 1"):
        ResourcePool("main", devices=devices)


# --- Dispatch ------------------------------------------------------------------------------------------------------


def small_batch(rows: int) -> Batch:
    return Batch.from_sequences([(np.array([2]), np.array([5, 6]))] * rows, rows={}, responses={})


def test_a_data_parallel_call_gives_the_whole_batch_back(group):
    assert group.marked(small_batch(3)).result(DEADLINE_S).rows["seen"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("ranks", [1, 3])
def test_data_parallel_arguments_are_split_and_results_joined(ranks):
    parts = split(Dispatch.DATA_PARALLEL, (small_batch(6), "option"), ranks)
    assert [len(batch) for batch, _ in parts] == [6 // ranks] * ranks
    assert {option for _, option in parts} == {"option"}
    assert len(join(Dispatch.DATA_PARALLEL, [batch for batch, _ in parts])) == 6


def test_one_to_all_gives_every_rank_all_and_the_caller_the_result_of_rank_0():
    assert split(Dispatch.ONE_TO_ALL, (1, 2), 3) == [(1, 2)] * 3
    assert join(Dispatch.ONE_TO_ALL, ["first", "second"]) == "first"


def test_no_reference_hands_a_batch_or_its_future_on():
    future: Future = Future()
    assert NoReference().log_probs(future) is future
