"""Calls on one pool are serial, calls on two overlap, groups take turns. What executors share is in test_executors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from autoclave.core import ConfigError, FaultError
from autoclave.workers import Dispatch, Mesh, ResourcePool, WorkerGroup, register
from autoclave.workers.trainer.reference import NoReference
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


class Resident(Recorder):
    """Notes when its turns begin and end, in a list that the test has."""

    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__()
        self._name, self._diary = name, diary

    def onload(self) -> None:
        self._diary.append(f"{self._name} comes")

    def offload(self) -> None:
        self._diary.append(f"{self._name} goes")

    @register(Dispatch.ONE_TO_ALL)
    def work(self) -> None:
        self._diary.append(f"{self._name} works")


class Stuck(Resident):
    def offload(self) -> None:
        raise FaultError("cannot be moved")


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
    rendezvous = threading.Barrier(2)
    first, second = group.do(rendezvous.wait, DEADLINE_S), other.do(rendezvous.wait, DEADLINE_S)
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


# --- Turns ---------------------------------------------------------------------------------------------------------


def test_groups_of_a_pool_take_turns_on_its_devices(pools):
    diary: list[str] = []
    first = WorkerGroup(pools[0], lambda: Resident("first", diary))
    second = WorkerGroup(pools[0], lambda: Resident("second", diary))
    for group in (second, first, first, second):
        group.work().result(DEADLINE_S)
    assert diary == [
        "first goes", "second works",
        "second goes", "first comes", "first works", "first works",
        "first goes", "second comes", "second works",
    ]  # fmt: skip


def test_a_group_that_has_its_pool_to_itself_stays_on_the_devices(pools):
    diary: list[str] = []
    groups = [WorkerGroup(pool, lambda name=pool.name: Resident(name, diary)) for pool in pools]
    for group in (*groups, *groups):
        group.work().result(DEADLINE_S)
    assert diary == ["first works", "second works", "first works", "second works"]


def test_a_group_does_not_come_before_the_other_has_gone(pools):
    diary: list[str] = []
    WorkerGroup(pools[0], lambda: Resident("before", diary))
    stuck = WorkerGroup(pools[0], lambda: Stuck("stuck", diary))
    with pytest.raises(FaultError, match="cannot be moved"):
        WorkerGroup(pools[0], lambda: Resident("after", diary))
    stuck.work().result(DEADLINE_S)
    assert diary == ["before goes", "stuck works"]


def test_a_worker_without_hooks_shares_its_pool_all_the_same(pools):
    diary: list[str] = []
    plain, resident = WorkerGroup(pools[0], Recorder), WorkerGroup(pools[0], lambda: Resident("it", diary))
    assert plain.do(int).result(DEADLINE_S) == 0
    resident.work().result(DEADLINE_S)
    assert diary == ["it goes", "it comes", "it works"]


# --- Groups --------------------------------------------------------------------------------------------------------


def test_a_mesh_of_another_size_than_the_pool_is_refused(pools):
    with pytest.raises(ConfigError, match="a mesh of 2 data x 2 tensor x 1 pipeline has 4 ranks, pool 'first' has 1"):
        WorkerGroup(pools[0], Recorder, mesh=Mesh(data=2, tensor=2))


def test_an_exception_in_an_argument_reaches_the_caller(group):
    with pytest.raises(OSError, match="lost"):
        group.do(str, settled(OSError("lost"))).result(DEADLINE_S)


def test_no_reference_hands_a_batch_or_its_future_on():
    future: Future = Future()
    assert NoReference().log_probs(future) is future
