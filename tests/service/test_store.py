"""What a store keeps, and that it keeps it: in a file, and in a database that several nodes share."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings

from autoclave.compose.service import open_store
from autoclave.core import InputError
from autoclave.service.store import sqlite
from autoclave.service.store.records import (
    Bounds,
    Event,
    EventKind,
    JobSpec,
    KeyReused,
    QueueFull,
    StoreUnavailable,
    body_of,
    problem_of,
)
from autoclave.service.store.sql import Store
from autoclave.service.store.sqlite import SqliteStore
from autoclave.service.tokens import Scope, create_token, identity_of, is_authentic, seconds_of
from tests import strategies

from .conftest import batch, jobs, problem, run_together, unfinished, until


@settings(max_examples=50)
@given(strategies.problems())
def test_a_problem_is_equal_after_a_round_trip(problem):
    assert problem_of(body_of(problem)) == problem


def test_a_problem_uploaded_again_is_stored_once(store: Store):
    given = problem()
    assert store.put_problems([given, replace(given, id="other")]) == [True, False]
    assert store.put_problems([given]) == [False]
    assert [record.id for record in store.list_problems("", 10)] == ["add"]
    assert store.problem(given.digest) == given


def test_a_deleted_problem_stays_for_accepted_jobs(store: Store):
    given = problem()
    store.put_problems([given])
    store.add_batch(batch(), [("1", JobSpec(given.digest, b""))])
    assert store.delete_problem(given.digest)
    assert not store.delete_problem(given.digest)
    assert store.problem_records([given.digest]) == store.list_problems("", 10) == []
    assert store.problem(given.digest) == given
    store.finish([("1", "{}")])
    store.purge(0.0)
    assert store.problem(given.digest) is None
    assert store.put_problems([given]) == [True]


def test_each_page_of_problems_continues_the_last(store: Store):
    given = sorted((problem((str(i), "x")) for i in range(7)), key=lambda one: one.digest)
    store.put_problems(given)
    first = store.list_problems("", 4)
    rest = store.list_problems(first[-1].digest, 4)
    assert [record.digest for record in [*first, *rest]] == [one.digest for one in given]


def test_a_verdict_is_stored_once_and_its_program_deleted(store: Store):
    store.add_batch(batch(), jobs("1", "2", "3"))
    assert [job.spec.source for job in store.claim(2, 0.0)] == [b"print('1')", b"print('2')"]
    assert store.finish([("2", '"two"'), ("1", '"one"')]) == ["2", "1"]
    assert store.finish([("2", '"again"')]) == store.cancel(["2"]) == []
    assert store.ended_among(["1", "2", "3", "nobody's"]) == ["1", "2", "nobody's"]
    assert [(state.id, state.verdict) for state in store.ended("b", 0)] == [("2", '"two"'), ("1", '"one"')]
    assert store.ended("b", store.job("2").sequence)[0].id == "1"
    assert unfinished(store) == ["3"]
    assert store._row("SELECT source FROM jobs WHERE id = '1'") == (None,)


def test_accepted_running_and_done_jobs_survive_a_crash(open_node: Callable[[], Store]):
    first = open_node()  # never closed before the second looks, as after kill -9
    first.add_batch(batch(keep_s=1.5, deadline=9.0), jobs("1", "2", "3"))
    first.claim(2, 0.0)
    first.finish([("1", "{}")])
    second = open_node()
    second.join()
    assert [adopted.id for adopted in second.adopt(0.0)] == ["b"]
    assert unfinished(second) == ["2", "3"]
    assert [(job.id, job.starts) for job in second.claim(9, 0.0)] == [("2", 2), ("3", 1)]
    assert second.finish([("3", "{}")]) == ["3"]
    assert second.job("3").sequence > second.job("1").sequence
    assert (second.batch("b").keep_s, second.batch("b").deadline) == (1.5, 9.0)


def test_the_same_key_is_the_same_batch_for_one_client(store: Store):
    kept = store.add_batch(batch(), jobs("1"))
    assert store.add_batch(batch(id="again"), jobs("2")) == kept
    assert store.add_batch(batch(id="other", client="d"), jobs("3")).id == "other"
    with pytest.raises(KeyReused):
        store.add_batch(replace(batch(id="x"), fingerprint="other"), jobs("4"))
    assert unfinished(store) == ["1", "3"]


def test_a_batch_is_stored_atomically(store: Store):
    with pytest.raises(Exception, match=r"(?i)unique"):
        store.add_batch(batch(), jobs("1", "1"))
    assert store.batch("b") is None
    assert unfinished(store) == []


def test_old_batches_are_purged_after_their_last_job(store: Store):
    store.add_batch(batch("b1", "1"), jobs("1"))
    store.add_batch(batch("b2", "2"), jobs("2"))
    store.finish([("1", "{}")])
    assert store.purge(time.time() + 1) == (1, 0)
    assert (store.job("1"), store.batch("b1"), store.job("2").state) == (None, None, "accepted")


def test_a_batch_is_kept_from_the_end_of_its_last_job(store: Store):
    store.add_batch(replace(batch("b1", "1"), created=1.0), jobs("1"))
    store.finish([("1", "{}")])
    assert store.purge(time.time() - 60) == (0, 0)
    assert store.job("1").verdict == "{}"


def test_a_store_of_another_version_or_another_file_is_refused(tmp_path: Path):
    for name, version in (("later", 999), ("older", 1)):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
            database.execute(f"PRAGMA user_version = {version}")
    (tmp_path / "text").write_text("this is no database\n" * 1000)
    for name, words in (("later", "newer program"), ("older", "upload the problems again"), ("text", "another file")):
        with pytest.raises(InputError, match=words):
            SqliteStore(tmp_path / name)


def test_a_file_is_readable_by_its_user_alone(tmp_path: Path):
    SqliteStore(tmp_path / "store.sqlite").close()
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


def test_a_token_is_stored_as_a_hash_and_compared_as_a_whole(store: Store):
    text, record = create_token("me", frozenset({Scope.JUDGE, Scope.ANSWERS_READ}), 100.0, 50.0)
    store.add_token(record)
    found = store.token(identity_of(text))
    assert found == record
    assert is_authentic(text, found, 149.0)
    assert not is_authentic(text, found, 150.0)
    assert not is_authentic(text[:-1], found, 101.0)
    assert not is_authentic(text, None, 101.0)
    assert store.revoke_token(record.id)
    assert not is_authentic(text, store.token(record.id), 101.0)
    assert not store.revoke_token("nobody")
    assert text not in str(store._rows("SELECT * FROM tokens"))


def test_a_node_joins_during_an_upload(postgres_url: str):
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as uploading:
        uploading.execute("LOCK TABLE problems IN ROW EXCLUSIVE MODE")  # as INSERT does
        separator = "&" if "?" in postgres_url else "?"
        open_store(f"{postgres_url}{separator}options=-c%20lock_timeout%3D1s").close()


# --- Any text, turns, bounds, deadlines ----------------------------------------------------------------------------


def test_any_string_is_equal_after_a_round_trip(store: Store):
    text = "a\0b \ud800 \U0001f600 %s ? '"
    given = problem()
    store.put_problems([replace(given, statement=text)])
    digest = store.list_problems("\0", 9)[0].digest
    assert store.problem_records([digest])[0].statement == text
    store.add_batch(batch(), [("1", JobSpec(digest, bytes(range(256)), label=text))])
    assert (store.jobs_of("b")[0].label, store.job("1").label) == (text, text)
    (claimed,) = store.claim(1, 0.0)
    assert (claimed.spec.label, claimed.spec.source) == (text, bytes(range(256)))


def test_jobs_after_their_deadline_get_a_verdict_and_are_not_claimed(store: Store):
    store.add_batch(batch("b1", "1", deadline=5.0), jobs("1", "2"))
    store.add_batch(batch("b2", "2", deadline=7.0), jobs("3"))
    store.add_batch(batch("b3", "3"), jobs("4"))
    assert [job.id for job in store.claim(1, 4.0)] == ["1"]
    assert [job.id for job in store.claim(9, 8.0)] == ["4"]
    assert store.expire(6.0, '"late"') == 7.0
    assert [(state.id, state.verdict) for state in store.ended("b1", 0)] == [("2", '"late"')]
    assert store.expire(8.0, '"late"') is None
    assert unfinished(store) == ["1", "4"]


# --- Several nodes -------------------------------------------------------------------------------------------------


def test_a_job_is_claimed_by_one_node(open_node: Callable[[], Store]):
    nodes = [open_node() for _ in range(3)]
    nodes[0].add_batch(batch(), jobs(*map(str, range(60))))
    found: list[str] = []

    def claim(node: Store) -> None:
        while taken := node.claim(2, 0.0):
            found.extend(job.id for job in taken)

    run_together(*(lambda node=node: claim(node) for node in nodes))
    assert sorted(found, key=int) == list(map(str, range(60)))


def test_followers_see_every_job_that_nodes_end_concurrently(open_node: Callable[[], Store]):
    nodes, follower = [open_node() for _ in range(2)], open_node()
    ids = [str(number) for number in range(60)]
    follower.add_batch(batch(), jobs(*ids))
    reported: list[str] = []

    def follow() -> None:
        after, is_over = 0, False
        while not is_over:
            is_over = follower.is_finished("b")  # before looking, as streams do
            for state in follower.ended("b", after):
                reported.append(state.id)
                after = state.sequence

    def end(node: Store, mine: list[str]) -> None:
        for id in mine:
            node.finish([(id, "{}")])

    run_together(follow, lambda: end(nodes[0], ids[::2]), lambda: end(nodes[1], ids[1::2]))
    assert sorted(reported, key=int) == ids


def test_a_job_ended_by_two_nodes_at_once_ends_once(open_node: Callable[[], Store]):
    nodes = [open_node() for _ in range(2)]
    ids = [str(number) for number in range(160)]
    for number in range(4):
        nodes[0].add_batch(batch(f"b{number}", str(number)), jobs(*ids[number::4]))
    kept: list[list[str]] = [[], []]

    def end(which: int) -> None:
        for start in range(0, 160, 8):
            part = ids[start : start + 8] if which else ids[start : start + 8][::-1]
            kept[which] += (
                nodes[which].finish([(id, f'"{which}"') for id in part]) if start % 16 else (nodes[which].cancel(part))
            )

    run_together(lambda: end(0), lambda: end(1))
    assert sorted(kept[0] + kept[1], key=int) == ids
    assert all(nodes[0].job(id).verdict in (None, f'"{int(id in kept[1])}"') for id in ids)


def test_jobs_of_a_node_without_heartbeats_go_to_another_node(open_node: Callable[[], Store]):
    gone, alive, last = open_node(), open_node(), open_node()
    for node in (gone, alive, last):
        node.join()
    for node in (gone, alive, last):
        node.beat(2, 1.5)
    gone.add_batch(batch(keep_s=1.0), jobs("1", "2"))
    assert [job.id for job in gone.claim(1, 0.0)] == ["1"]
    gone.beat(2, 1.5)
    assert alive.adopt(60.0) == []
    assert [job.id for job in alive.claim(9, 0.0)] == ["2"]
    assert [adopted.id for adopted in alive.adopt(-1.0)] == ["b"]
    assert [(job.id, job.starts) for job in alive.claim(9, 0.0)] == [("1", 2)]
    assert gone.finish([("1", '"from the dead"')]) == ["1"]  # it was alive, and the first to finish
    assert alive.finish([("1", '"too late"')]) == []
    assert [adopted.id for adopted in last.adopt(-1.0)] == ["b"]  # a node that took over can be taken over from
    assert [job.id for job in last.claim(9, 0.0)] == ["2"]


def test_a_returned_job_does_not_count_as_started(open_node: Callable[[], Store]):
    first, second = open_node(), open_node()
    first.add_batch(batch(), jobs("1", "2", "3"))
    first.claim(2, 0.0)
    first.give_back({"2"})
    assert [(job.id, job.starts) for job in second.claim(9, 0.0)] == [("1", 1), ("3", 1)]
    first.leave()
    assert [(job.id, job.starts) for job in second.claim(9, 0.0)] == [("2", 1)]


def test_bounds_and_keys_hold_over_nodes_that_accept_at_once(open_node: Callable[[], Store]):
    nodes = [open_node() for _ in range(3)]
    accepted: list[str] = []

    def accept(number: int) -> None:
        for key in range(20):
            id = f"{number}-{key}"
            with contextlib.suppress(QueueFull):
                kept = nodes[number].add_batch(batch(id, str(key)), jobs(id), Bounds(12, 12))
                accepted.append(kept.id)

    run_together(*(lambda number=number: accept(number) for number in range(3)))
    assert nodes[0].load().waiting == len(set(accepted)) == 12
    assert len({id.partition("-")[2] for id in accepted}) == 12  # a reused key gives the same batch


def test_a_batch_is_cancelled_once_no_node_has_its_client(open_node: Callable[[], Store]):
    first, second = open_node(), open_node()
    first.add_batch(batch(keep_s=0.0), jobs("1", "2"))
    second.watch("b")
    assert first.abandon("b") == 0
    assert second.abandon("b") == 2
    assert first.job("1").state == "cancelled"


def test_the_load_counts_all_nodes(open_node: Callable[[], Store]):
    first, second = open_node(), open_node()
    for node, slots in ((first, 2), (second, 3)):
        node.join()
        node.beat(slots, 0.5 * slots)
    first.add_batch(batch(), jobs("1", "2", "3"))
    second.add_batch(batch("other", client="d"), jobs("4"))
    load = second.load()
    assert (load.waiting, load.clients) == (4, 2)
    second.beat(3, 4.5)
    assert (first.load().slots, first.load().per_s) == (3, 4.5)


def test_subscribers_get_the_events(store: Store):
    heard: list[Event] = []
    store.subscribe(heard.append)
    until(lambda: heard or isinstance(store, SqliteStore))
    store.add_batch(batch(), jobs("1", "2"))
    store.finish([("1", "{}")])
    store.cancel(["2"])
    expected = [
        Event(EventKind.WAITING),
        Event(EventKind.ENDED, "b"),
        Event(EventKind.ENDED, "b"),
        Event(EventKind.CANCELLED, "b"),
    ]
    until(lambda: [event for event in heard if event.kind is not EventKind.UNKNOWN] == expected)


@pytest.mark.parametrize(("text", "seconds"), [("30d", 2_592_000), ("12h", 43200), ("45s", 45), ("never", None)])
def test_durations_are_parsed(text: str, seconds: float | None):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "3", "d", "3 d", "-1d", "1e9d", "soon"])
def test_an_invalid_duration_is_refused(text: str):
    with pytest.raises(InputError, match="30d"):
        seconds_of(text)


def test_a_file_that_another_process_locks_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "_PATIENCE_MS", 100)
    path = tmp_path / "store.sqlite"
    with contextlib.closing(SqliteStore(path)) as store, contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            store.add_batch(batch(), jobs("1"))
        other.rollback()
        store.add_batch(batch(), jobs("1"))


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.purge(0.0),
        lambda store: store.add_batch(
            batch(f"own{next(NUMBERS)}", f"{next(NUMBERS)}"), own_jobs(4), Bounds(9000, 9000)
        ),
        lambda store: store.finish([(job.id, "{}") for job in store.claim(4, 0.0)]),
    ],
    ids=["upkeep", "accept", "claim and finish"],
)
def test_work_does_not_grow_with_what_is_stored(tmp_path: Path, work: Callable[[SqliteStore], object]):
    steps: list[int] = []
    with contextlib.closing(SqliteStore(tmp_path / "store")) as store:
        for size in (50, 1500):
            store.put_problems(problem((f"{next(NUMBERS)}", "x")) for _ in range(size))
            store.add_batch(batch(f"{size}", f"{size}"), own_jobs(size))
            count = itertools.count()
            store._database.set_progress_handler(lambda count=count: next(count) and None, 10)
            work(store)
            store._database.set_progress_handler(None, 0)
            steps.append(next(count))
    assert steps[1] <= 1.5 * steps[0]


NUMBERS, ROOM = itertools.count(), Bounds(9000, 9000)


def own_jobs(count: int) -> list[tuple[str, JobSpec]]:
    return jobs(*(f"{next(NUMBERS)}" for _ in range(count)))
