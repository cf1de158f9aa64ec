"""The order in which runs get a place. Runs that hold a place stop at a gate, so nothing depends on time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from autoclave.service import run_queue
from autoclave.service.refusals import Refused
from autoclave.service.run_queue import RunQueue

SHORT_S, LONG_S = 0.5, 10.0


class Runs:
    """Runs in one queue: `begun` has the names of those that got a place, in order."""

    def __init__(self, places: int, most_waiting: int = 100) -> None:
        self.is_draining = False
        self.queue = RunQueue(places, most_waiting, lambda: self.is_draining)
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._disconnected: dict[str, asyncio.Future[None]] = {}

    async def add(self, name: str, client: str, limit_s: float = SHORT_S, **options: Any) -> None:
        gate = self._gates[name] = asyncio.Event()
        left = self._disconnected[name] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with self.queue.place(client, limit_s, left, **options):
                self.begun.append(name)
                await gate.wait()

        self.tasks[name] = asyncio.create_task(run())
        await asyncio.sleep(0.002)

    async def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()
            await asyncio.sleep(0.002)

    async def disconnect(self, name: str) -> None:
        self._disconnected[name].set_result(None)
        await asyncio.sleep(0.002)

    async def end_all(self) -> list[str]:
        while any(not task.done() for task in self.tasks.values()):
            await self.end(*self.begun)
        return self.begun


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(asyncio.wait_for(test(), 20))


@in_a_loop
async def test_clients_take_turns():
    runs = Runs(1)
    for name in ("a1", "a2", "a3", "b1", "b2"):
        await runs.add(name, name[0])
    assert runs.begun == ["a1", "b1"]  # nothing of `b` ran: it gets the further place
    order = await runs.end_all()
    assert order.index("b2") < order.index("a3")
    assert runs.queue.num_admitted == 0


@in_a_loop
async def test_short_attempts_go_first_and_long_ones_leave_them_a_place():
    runs = Runs(2)
    for name, limit_s in (("s1", SHORT_S), ("s2", SHORT_S), ("l1", LONG_S), ("l2", LONG_S), ("s3", SHORT_S)):
        await runs.add(name, "a", limit_s)
    await runs.end("s1")
    assert runs.begun == ["s1", "s2", "s3"]
    await runs.end("s2", "s3")
    assert runs.begun[3:] == ["l1", "l2"]  # no short one waits
    await runs.add("s4", "a")
    assert runs.begun[5:] == ["s4"]  # only long ones ran: it gets the further place
    for name, limit_s in (("s5", SHORT_S), ("s6", SHORT_S), ("l3", LONG_S)):
        await runs.add(name, "a", limit_s)
    await runs.end("l1")
    assert runs.begun[6:] == []  # the further place is taken back
    await runs.end("s4")
    assert runs.begun[6:] == ["s5"]
    await runs.end("l2")
    assert runs.begun[7:] == ["s6"]
    await runs.end_all()


@in_a_loop
async def test_a_long_attempt_does_not_wait_for_ever():
    runs = Runs(1)
    await runs.add("s1", "a")
    await runs.add("l", "a", LONG_S, since=-1000.0)
    await runs.add("s2", "a")
    await runs.end("s1")
    assert runs.begun[:2] == ["s1", "l"]
    await runs.end_all()


@in_a_loop
async def test_a_retry_comes_before_newer_runs_of_its_client():
    runs = Runs(1, most_waiting=1)
    first, is_retry = runs.queue.first_seen("a", b"run")
    assert not is_retry
    await runs.add("a1", "a")
    await runs.add("a2", "a")
    with pytest.raises(Refused):
        runs.queue.require_room("a", b"run")
    since, is_retry = runs.queue.first_seen("a", b"run")
    assert is_retry
    assert since >= first
    assert not runs.queue.first_seen("b", b"run")[1]
    runs.queue.require_room("a", b"run")  # retries may be as many again
    await runs.add("retry", "a", since=since - 1)
    await runs.end("a1")
    assert runs.begun == ["a1", "retry"]
    await runs.end_all()


@in_a_loop
async def test_a_run_of_a_disconnected_client_does_not_start():
    runs = Runs(1)
    for name in ("a1", "a2", "a3"):
        await runs.add(name, "a")
    await runs.disconnect("a2")
    assert isinstance(runs.tasks["a2"].exception(), Refused)
    runs.tasks["a3"].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await runs.tasks["a3"]
    assert await runs.end_all() == ["a1"]
    assert runs.queue.num_admitted == 0


@in_a_loop
async def test_a_shutdown_refuses_what_waits_but_not_what_must_stay():
    runs = Runs(1)
    await runs.add("a1", "a")
    await runs.add("a2", "a")
    await runs.add("a3", "a", must_stay=lambda: True)
    runs.is_draining = True
    await runs.end("a1")
    refusal = runs.tasks["a2"].exception()
    assert isinstance(refusal, Refused)
    assert refusal.status_code == 503
    assert await runs.end_all() == ["a1", "a3"]


def test_refused_runs_are_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch):
    queue, now = RunQueue(1, 1, lambda: False), [0.0]
    monkeypatch.setattr(run_queue, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(run_queue.time, "monotonic", lambda: now[0])

    def known() -> list[bytes]:
        return [run for run in (b"1", b"2", b"3") if queue.first_seen("a", run)[1]]

    for run in (b"1", b"2", b"3"):
        queue.remember("a", run)
    assert known() == [b"2", b"3"]
    now[0] = 901.0
    queue.remember("a", b"2")
    assert known() == [b"2"]
    assert queue.first_seen("a", b"2") == (901.0, True)


@in_a_loop
async def test_a_run_that_ended_does_not_hold_its_request():
    runs = Runs(1)
    kept = lambda: True  # noqa: E731  it stands for the request
    held = weakref.ref(kept)
    await runs.add("a1", "a")
    await runs.add("a2", "a")
    await runs.add("a3", "a", LONG_S, must_stay=kept)
    await runs.disconnect("a3")
    del kept
    assert isinstance(runs.tasks.pop("a3").exception(), Refused)
    gc.collect()
    assert held() is None
    await runs.end_all()


def test_attempts_grow_to_the_whole_limit():
    queue = RunQueue(1, 1, lambda: False)

    def limits(client: str, whole_s: float) -> list[float]:
        found = [queue.first_limit_s(client, whole_s)]
        while found[-1] < whole_s:
            found.append(queue.next_limit_s(found[-1], whole_s))
        return found

    assert limits("a", 10.0) == [0.5, 2.0, 10.0]
    assert limits("a", 1.0) == [1.0]
    for _ in range(30):
        queue.note("a", 1.0)
    assert limits("a", 10.0) == [pytest.approx(4.0), 10.0]
    assert limits("b", 10.0) == [0.5, 2.0, 10.0]
