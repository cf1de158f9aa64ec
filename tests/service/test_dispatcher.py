"""One dispatcher by itself, with a judge whose programs end when the test says so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from autoclave.core import Status, Verdict
from autoclave.judge import JudgeJob
from autoclave.service.dispatcher import Dispatcher
from autoclave.service.loop_thread import Notices
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.store.records import Bounds, JobSpec
from autoclave.service.store.sql import Store
from autoclave.service.store.sqlite import SqliteStore

from .conftest import RIGHT, batch, problem, until

SLOTS = 4
ACCEPTED = Verdict.of(Status.ACCEPTED)


class HeldJudge:
    """Programs end when they are let go."""

    def __init__(self) -> None:
        self.futures: dict[str, Future[Verdict]] = {}

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self.futures[job.id] = Future()
        return self.futures[job.id]


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with contextlib.closing(SqliteStore(tmp_path / "store.sqlite")) as opened:
        yield opened


@pytest.fixture
def judge(store: Store) -> Iterator[HeldJudge]:
    """The judge of a dispatcher that nothing but its own work wakes: no node with a heartbeat is beside it."""
    held = HeldJudge()
    dispatcher = Dispatcher(
        held,
        store,
        Notices(),
        Bounds(100, 100),
        ProblemCache(store, 1 << 20),
        slots=SLOTS,
        keep_results_s=60.0,
        observe=lambda *_: None,
    )
    dispatcher.start()
    yield held
    for future in held.futures.values():
        future.cancel()
    dispatcher.stop()


def submit(store: Store, judge: HeldJudge, *names: str) -> None:
    given = problem()
    store.put_problems([given])
    store.add_batch(batch(), [(name, JobSpec(given.digest, RIGHT.encode(), label=name)) for name in names])
    until(lambda: len(judge.futures) == min(len(names), 2 * SLOTS))


def kept(store: Store) -> set[str]:
    return {state.id for state in store.jobs_of("b") if state.sequence is not None}


def test_a_verdict_is_stored_soon_while_others_run(store: Store, judge: HeldJudge):
    submit(store, judge, "a", "b", "c")
    judge.futures["b"].set_result(ACCEPTED)
    until(lambda: kept(store) == {"b"})


def test_verdicts_that_arrive_together_are_stored_in_one_transaction(store: Store, judge: HeldJudge, monkeypatch):
    monkeypatch.setattr("autoclave.service.dispatcher._GATHER_S", 0.5)
    submit(store, judge, *"abcdefgh")
    transactions: list[int] = []
    finish = store.finish
    monkeypatch.setattr(store, "finish", lambda ended, used: transactions.append(len(ended)) or finish(ended, used))
    for name in "abc":
        judge.futures[name].set_result(ACCEPTED)
        time.sleep(0.02)
    until(lambda: kept(store) == set("abc"))
    assert transactions == [3]


def test_verdicts_are_stored_at_once_when_no_job_is_running(store: Store, judge: HeldJudge, monkeypatch):
    monkeypatch.setattr("autoclave.service.dispatcher._GATHER_S", 3600.0)
    submit(store, judge, "a", "b")
    judge.futures["a"].set_result(ACCEPTED)
    judge.futures["b"].set_result(ACCEPTED)
    until(lambda: kept(store) == {"a", "b"})


def test_queued_jobs_start_once_half_of_the_running_ones_have_ended(store: Store, judge: HeldJudge, monkeypatch):
    monkeypatch.setattr("autoclave.service.dispatcher._GATHER_S", 3600.0)
    names = [str(number) for number in range(3 * SLOTS)]
    submit(store, judge, *names)
    for name in names[:SLOTS]:
        judge.futures[name].set_result(ACCEPTED)
    until(lambda: len(judge.futures) == 3 * SLOTS)
    assert kept(store) == set(names[:SLOTS])
