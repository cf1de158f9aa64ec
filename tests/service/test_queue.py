"""Whose turn it is: laws of the queue, against a plain list."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autoclave.service.queue import FairQueue, QueueFull, Ticket
from autoclave.service.rates import RateMeter, TokenBuckets

CLIENTS = ("a", "b", "c")


def tickets(*names: str, priority: int = 4) -> list[Ticket]:
    """Tickets of clients named by the first letter."""
    return [Ticket(name, name[0], priority) for name in names]


def filled(*waiting: Ticket) -> FairQueue:
    queue = FairQueue(1000, 1000)
    for ticket in waiting:
        queue.put(ticket)
    return queue


def drained(queue: FairQueue) -> list[str]:
    return [ticket.id for ticket in iter(queue.take, None)]


def test_clients_take_turns_and_each_keeps_its_order():
    assert drained(filled(*tickets("a1", "a2", "a3", "a4", "b1", "b2", "c1"))) == [
        "a1", "b1", "c1", "a2", "b2", "a3", "a4",
    ]  # fmt: skip


def test_the_highest_priority_goes_first():
    waiting = [*tickets("a1", priority=0), *tickets("a2", "b1", priority=9), *tickets("c1")]
    assert drained(filled(*waiting)) == ["a2", "b1", "c1", "a1"]


def test_one_that_left_takes_no_turn():
    queue = filled(*tickets("a1", "a2", "b1"))
    assert queue.remove("a1")
    assert not queue.remove("a1")
    assert drained(queue) == ["a2", "b1"]


def test_what_is_too_late_leaves_by_itself():
    queue = filled(Ticket("x", "a", deadline=5.0), Ticket("y", "a", deadline=7.0), Ticket("z", "a"))
    assert queue.next_deadline == 5.0
    assert [ticket.id for ticket in queue.expire(6.0)] == ["x"]
    assert drained(queue) == ["y", "z"]


def test_the_bounds_are_told_with_how_many_are_too_many():
    queue = FairQueue(limit=5, client_limit=3)
    for ticket in tickets("a1", "a2", "b1"):
        queue.put(ticket)
    queue.require_room("a", 1)
    queue.require_room("b", 2)
    with pytest.raises(QueueFull) as own:
        queue.require_room("a", 3)
    with pytest.raises(QueueFull) as all_together:
        queue.require_room("c", 3)
    with pytest.raises(QueueFull):
        queue.require_room("c", 2, reserved=1)
    assert (own.value.excess, own.value.is_own_share) == (2, True)
    assert (all_together.value.excess, all_together.value.is_own_share) == (1, False)


@given(st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(0, 9)), max_size=40))
def test_every_ticket_comes_out_once_by_priority_and_fairly(drawn: list[tuple[str, int]]):
    waiting = [Ticket(str(number), client, priority) for number, (client, priority) in enumerate(drawn)]
    queue = filled(*waiting)
    taken = list(iter(queue.take, None))
    assert sorted(taken, key=lambda ticket: int(ticket.id)) == waiting
    assert [ticket.priority for ticket in taken] == sorted((t.priority for t in waiting), reverse=True)
    for priority in range(10):
        same = [ticket for ticket in taken if ticket.priority == priority]
        for client in CLIENTS:
            mine = [int(ticket.id) for ticket in same if ticket.client == client]
            assert mine == sorted(mine)
        served: Counter[str] = Counter()
        totals = Counter(ticket.client for ticket in same)
        for ticket in same:  # nobody is served twice while somebody else waits longer
            served[ticket.client] += 1
            waits = [served[client] for client in totals if served[client] < totals[client]]
            assert served[ticket.client] <= min(waits, default=served[ticket.client]) + 1


class QueueMachine(RuleBasedStateMachine):
    """The queue beside a dict of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(limit=12, client_limit=6)
        self.model: dict[str, Ticket] = {}
        self.number = 0
        self.now = 0.0

    @rule(client=st.sampled_from(CLIENTS), priority=st.integers(0, 2), patience=st.none() | st.integers(1, 5))
    def put(self, client: str, priority: int, patience: int | None):
        own = sum(ticket.client == client for ticket in self.model.values())
        try:
            self.queue.require_room(client, 1)
        except QueueFull:
            assert own >= 6 or len(self.model) >= 12
            return
        assert own < 6
        assert len(self.model) < 12
        self.number += 1
        ticket = Ticket(str(self.number), client, priority, None if patience is None else self.now + patience)
        self.queue.put(ticket)
        self.model[ticket.id] = ticket

    @rule()
    def take(self):
        ticket = self.queue.take()
        if ticket is None:
            assert not self.model
        else:
            assert ticket.priority == max(waiting.priority for waiting in self.model.values())
            assert self.model.pop(ticket.id) is ticket

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject):
        id = data.draw(st.sampled_from(sorted(self.model)))
        assert self.queue.remove(id)
        del self.model[id]

    @rule(seconds=st.integers(1, 3))
    def expire(self, seconds: int):
        self.now += seconds
        late = {id for id, ticket in self.model.items() if ticket.deadline is not None and ticket.deadline <= self.now}
        assert {ticket.id for ticket in self.queue.expire(self.now)} == late
        for id in late:
            del self.model[id]

    @invariant()
    def counts_agree(self):
        assert len(self.queue) == len(self.model)
        for client in CLIENTS:
            assert self.queue.num_of(client) == sum(ticket.client == client for ticket in self.model.values())


TestQueueMachine = QueueMachine.TestCase


def test_deadlines_of_tickets_that_left_are_not_kept():
    queue = FairQueue(10, 10)
    for number in range(5000):
        queue.put(Ticket(str(number), "a", deadline=1e9))
        queue.take()
    assert len(queue._deadlines) < 100


def test_the_time_for_more_follows_the_rate_of_late():
    meter = RateMeter(window_s=10.0)
    assert meter.seconds_for(100, 0.0) == 1.0  # nothing is known
    for second in range(11):
        meter.note(float(second), 5)
    assert meter.per_s(10.0) == pytest.approx(5.5)
    assert meter.seconds_for(55, 10.0) == pytest.approx(10.0)
    assert meter.per_s(100.0) == 0.0


def test_a_client_that_asks_too_often_waits_as_long_as_it_is_told():
    buckets = TokenBuckets(per_s=2.0, burst=3)
    assert [buckets.wait_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    wait_s = buckets.wait_s("a", 0.0)
    assert wait_s == pytest.approx(0.5)
    assert buckets.wait_s("b", 0.0) == 0.0
    assert buckets.wait_s("a", wait_s) == 0.0
