"""Order of the queue in a store, against a plain list."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autoclave.service.rates import RateMeter, TokenBuckets, seconds_for
from autoclave.service.refusals import RecentRefusals, busy
from autoclave.service.store.records import Bounds, QueueFull
from autoclave.service.store.sql import Store
from autoclave.service.store.sqlite import SqliteStore

from .conftest import batch, jobs, unfinished

CLIENTS = ("a", "b", "c")
_numbers = itertools.count()


class Queued(NamedTuple):
    """A queued job of the model."""

    id: str
    client: str
    priority: int
    deadline: float | None = None


def put(store: Store, *names: str, bounds: Bounds | None = None, **fields: object) -> None:
    """Queue jobs of clients named by the first letter, in one batch for each client and run of names."""
    for client, mine in itertools.groupby(names, key=lambda name: name[0]):
        number = str(next(_numbers))
        store.add_batch(batch(number, number, client, **fields), jobs(*mine), bounds)


def claimed(store: Store) -> list[str]:
    return list(iter(lambda: next((job.id for job in store.claim(1, 0.0)), None), None))


def test_clients_take_turns_and_each_keeps_its_order(store: Store):
    put(store, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
    assert claimed(store) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_jobs_claimed_together_are_next_in_order(store: Store):
    put(store, "a1", "a2", "a3", "b1", "b2")
    assert [job.id for job in store.claim(3, 0.0)] == ["a1", "b1", "a2"]


def test_a_client_with_single_jobs_alternates_with_a_large_batch(store: Store):
    put(store, *(f"a{number}" for number in range(8)))
    served = [job.id for job in store.claim(4, 0.0)]
    for number in range(3):
        put(store, f"b{number}")
        served += [job.id for job in store.claim(2, 0.0)]
    assert served == ["a0", "a1", "a2", "a3", "a4", "b0", "a5", "b1", "a6", "b2"]


def test_an_idle_client_gains_no_credit(store: Store):
    put(store, *(f"a{number}" for number in range(6)))
    store.claim(3, 0.0)
    put(store, *(f"b{number}" for number in range(3)))
    assert claimed(store) == ["a3", "b0", "a4", "b1", "a5", "b2"]


def test_the_highest_priority_goes_first(store: Store):
    put(store, "a1", priority=0)
    put(store, "a2", "b1", priority=9)
    put(store, "c1")
    assert claimed(store) == ["a2", "b1", "c1", "a1"]


def test_a_cancelled_job_takes_no_turn(store: Store):
    put(store, "a1", "a2", "b1")
    store.cancel(["a1"])
    assert claimed(store) == ["b1", "a2"]


def test_the_error_of_a_full_queue_has_the_excess(store: Store):
    bounds = Bounds(total=5, of_client=3)
    put(store, "a1", "a2", "b1", bounds=bounds)
    with pytest.raises(QueueFull) as own:
        put(store, "a3", "a4", "a5", bounds=bounds)
    with pytest.raises(QueueFull) as all_together:
        put(store, "c1", "c2", "c3", bounds=bounds)
    assert (own.value.excess, own.value.is_own_share) == (2, True)
    assert (all_together.value.excess, all_together.value.is_own_share) == (1, False)
    store.claim(2, 0.0)  # what does not wait does not count
    put(store, "c1", "c2", "c3", bounds=bounds)
    assert store.load().waiting == 4


def test_the_bounds_hold_after_the_newest_jobs_were_deleted(store: Store):
    bounds = Bounds(total=4, of_client=4)
    put(store, "a1", "a2")
    done = [f"a{number}" for number in range(3, 12)]
    put(store, *done)
    store.finish([(id, "{}") for id in done])
    put(store, "a12", bounds=bounds)
    store.finish([("a12", "{}")])
    store.purge(9e9)
    with pytest.raises(QueueFull):
        put(store, "a13", "a14", "a15", bounds=bounds)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(0, 9)), max_size=25))
def test_every_job_comes_out_once_by_priority_and_fairly(store: Store, drawn: list[tuple[str, int]]):
    store.purge(9e9)
    for number, (client, priority) in enumerate(drawn):
        put(store, f"{client}{number}", priority=priority)
    waiting = {
        f"{client}{number}": Queued(f"{client}{number}", client, priority)
        for number, (client, priority) in enumerate(drawn)
    }
    assert unfinished(store) == list(waiting)
    taken = [waiting[id] for id in claimed(store)]
    store.cancel(list(waiting))
    assert sorted(one.id for one in taken) == sorted(waiting)
    assert [one.priority for one in taken] == sorted((priority for _, priority in drawn), reverse=True)
    for priority in range(10):
        same = [one for one in taken if one.priority == priority]
        for client in CLIENTS:
            mine = [int(one.id[1:]) for one in same if one.client == client]
            assert mine == sorted(mine)
        served: Counter[str] = Counter()
        totals = Counter(one.client for one in same)
        for one in same:  # no client is served twice while another waits longer
            served[one.client] += 1
            waits = [served[client] for client in totals if served[client] < totals[client]]
            assert served[one.client] <= min(waits, default=served[one.client]) + 1


class QueueMachine(RuleBasedStateMachine):
    """The queue of a store beside a dict of queued jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = contextlib.ExitStack()
        folder = self.opened.enter_context(tempfile.TemporaryDirectory())
        self.store = self.opened.enter_context(contextlib.closing(SqliteStore(Path(folder) / "store.sqlite")))
        self.model: dict[str, Queued] = {}
        self.number = 0
        self.now = 0.0

    def teardown(self) -> None:
        self.opened.close()

    @rule(client=st.sampled_from(CLIENTS), priority=st.integers(0, 2), patience=st.none() | st.integers(1, 5))
    def put(self, client: str, priority: int, patience: int | None):
        own = sum(one.client == client for one in self.model.values())
        name = f"{client}{self.number}"
        deadline = None if patience is None else self.now + patience
        try:
            put(self.store, name, bounds=Bounds(12, 6), priority=priority, deadline=deadline)
        except QueueFull:
            assert own >= 6 or len(self.model) >= 12
            return
        assert own < 6
        assert len(self.model) < 12
        self.number += 1
        self.model[name] = Queued(name, client, priority, deadline)

    @rule(count=st.integers(1, 3))
    def claim(self, count: int):
        able = [one for one in self.model.values() if one.deadline is None or one.deadline > self.now]
        taken = self.store.claim(count, self.now)
        assert len(taken) == min(count, len(able))
        for job in taken:
            assert self.model[job.id].priority == max(one.priority for one in able)
            able.remove(self.model.pop(job.id))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject):
        id = data.draw(st.sampled_from(sorted(self.model)))
        assert self.store.cancel([id]) == [id]
        del self.model[id]

    @rule(seconds=st.integers(1, 3))
    def expire(self, seconds: int):
        self.now += seconds
        late = [id for id, one in self.model.items() if one.deadline is not None and one.deadline <= self.now]
        for id in late:
            del self.model[id]
        left = [one.deadline for one in self.model.values() if one.deadline is not None]
        assert self.store.expire(self.now, '"late"') == min(left, default=None)
        assert all(self.store.job(id).verdict == '"late"' for id in late)

    @invariant()
    def counts_agree(self):
        load = self.store.load()
        assert (load.waiting, load.clients) == (len(self.model), len({one.client for one in self.model.values()}))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=30, deadline=None)


def test_retry_after_follows_the_recent_rate():
    meter = RateMeter(window_s=10.0)
    assert seconds_for(100, meter.per_s(0.0)) == 1.0  # nothing is known
    for second in range(11):
        meter.note(float(second), 5)
    assert meter.per_s(10.0) == pytest.approx(5.5)
    assert seconds_for(55, meter.per_s(10.0)) == pytest.approx(10.0)
    assert meter.per_s(100.0) == 0.0


def test_a_recent_refusal_is_repeated_without_a_query():
    recent, refusal = RecentRefusals(), busy("full", 3.0)
    recent.note("a", 10, refusal, 0.0)
    assert recent.get("a", 10, 0.2) is recent.get("a", 12, 0.2) is refusal
    assert recent.get("a", 9, 0.2) is recent.get("b", 10, 0.2) is recent.get("a", 10, 0.3) is None


def test_a_rate_limited_client_may_continue_after_the_wait():
    buckets = TokenBuckets(per_s=2.0, burst=3)
    assert [buckets.wait_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    wait_s = buckets.wait_s("a", 0.0)
    assert wait_s == pytest.approx(0.5)
    assert buckets.wait_s("b", 0.0) == 0.0
    assert buckets.wait_s("a", wait_s) == 0.0
