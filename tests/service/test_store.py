"""What a store keeps, and that it keeps it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from autoclave.core import InputError
from autoclave.service.store import Batch, JobSpec, KeyReused
from autoclave.service.store.migrations import MIGRATIONS
from autoclave.service.store.records import body_of, problem_of
from autoclave.service.store.sqlite import SqliteStore
from autoclave.service.tokens import Scope, create_token, identity_of, is_proved, seconds_of
from tests import strategies

from .conftest import problem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with contextlib.closing(SqliteStore(tmp_path / "store.sqlite")) as opened:
        yield opened


def batch(id: str = "b", key: str = "k", client: str = "c", **fields: object) -> Batch:
    return Batch(id, client, key, "print", 4, time.time(), **fields)


def jobs(*ids: str) -> list[tuple[str, JobSpec]]:
    return [(id, JobSpec("0" * 64, f"print({id!r})".encode(), label=id)) for id in ids]


@settings(max_examples=50)
@given(strategies.problems())
def test_a_problem_is_read_back_as_it_was(problem):
    assert problem_of(body_of(problem)) == problem


def test_a_problem_is_one_however_often_it_comes(store: SqliteStore):
    given = problem()
    assert store.put_problems([given, replace(given, id="other")]) == [True, False]
    assert store.put_problems([given]) == [False]
    assert [record.id for record in store.list_problems("", 10)] == ["add"]
    assert store.problem(given.digest) == given


def test_a_deleted_problem_stays_for_the_jobs_that_were_accepted(store: SqliteStore):
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


def test_pages_of_problems_go_on_where_the_last_ended(store: SqliteStore):
    given = sorted((problem((str(i), "x")) for i in range(7)), key=lambda one: one.digest)
    store.put_problems(given)
    first = store.list_problems("", 4)
    rest = store.list_problems(first[-1].digest, 4)
    assert [record.digest for record in [*first, *rest]] == [one.digest for one in given]


def test_a_verdict_is_kept_once_and_a_program_only_until_then(store: SqliteStore):
    store.add_batch(batch(), jobs("1", "2", "3"))
    assert [job.spec.source for job in store.start(["1", "2"])] == [b"print('1')", b"print('2')"]
    assert store.finish([("2", '"two"'), ("1", '"one"')]) == ["2", "1"]
    assert store.finish([("2", '"again"')]) == store.cancel(["2"]) == store.start(["2"]) == []
    assert [(state.id, state.verdict) for state in store.ended("b", 0)] == [("2", '"two"'), ("1", '"one"')]
    assert store.ended("b", store.job("2").sequence)[0].id == "1"
    assert [waiting.id for waiting in store.unfinished()] == ["3"]
    assert b"print('1')" not in store._row("SELECT coalesce(source, '') FROM jobs WHERE id = '1'")


def test_what_is_accepted_running_and_done_is_there_after_a_crash(tmp_path: Path):
    path = tmp_path / "store.sqlite"
    first = SqliteStore(path)  # never closed before the second looks, as after kill -9
    first.add_batch(batch(keep_s=1.5, deadline=9.0), jobs("1", "2", "3"))
    first.start(["1", "2"])
    first.finish([("1", "{}")])
    with contextlib.closing(SqliteStore(path)) as second:
        assert [waiting.id for waiting in second.unfinished()] == ["2", "3"]
        assert [job.starts for job in second.start(["2", "3"])] == [2, 1]
        assert second.finish([("3", "{}")]) == ["3"]
        assert second.job("3").sequence > second.job("1").sequence
        assert (second.batch("b").keep_s, second.batch("b").deadline) == (1.5, 9.0)
    first.close()


def test_the_same_key_is_the_same_batch_for_one_client(store: SqliteStore):
    kept = store.add_batch(batch(), jobs("1"))
    assert store.add_batch(batch(id="again"), jobs("2")) == kept
    assert store.add_batch(batch(id="other", client="d"), jobs("3")).id == "other"
    with pytest.raises(KeyReused):
        store.add_batch(replace(batch(id="x"), fingerprint="other"), jobs("4"))
    assert [waiting.id for waiting in store.unfinished()] == ["1", "3"]


def test_a_batch_is_whole_or_absent(store: SqliteStore):
    with pytest.raises(sqlite3.IntegrityError):
        store.add_batch(batch(), jobs("1", "1"))
    assert store.batch("b") is None
    assert store.unfinished() == []


def test_old_batches_are_forgotten_when_all_has_ended(store: SqliteStore):
    store.add_batch(batch("b1", "1"), jobs("1"))
    store.add_batch(batch("b2", "2"), jobs("2"))
    store.finish([("1", "{}")])
    assert store.purge(time.time() + 1) == 1
    assert (store.job("1"), store.batch("b1"), store.job("2").state) == (None, None, "accepted")


def test_each_version_of_the_schema_becomes_the_newest(tmp_path: Path):
    for version in range(len(MIGRATIONS) + 1):
        path = tmp_path / f"{version}.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as old:
            for step in MIGRATIONS[:version]:
                for statement in step:
                    old.execute(statement)
            old.execute(f"PRAGMA user_version = {version}")
            old.commit()
        with contextlib.closing(SqliteStore(path)) as opened:
            opened.put_problems([problem()])
            assert opened._value("PRAGMA user_version") == len(MIGRATIONS)


def test_a_store_of_a_later_version_or_another_file_is_refused(tmp_path: Path):
    with contextlib.closing(sqlite3.connect(tmp_path / "later")) as later:
        later.execute("PRAGMA user_version = 999")
    (tmp_path / "text").write_text("this is no database\n" * 1000)
    for name, words in (("later", "newer program"), ("text", "another file")):
        with pytest.raises(InputError, match=words):
            SqliteStore(tmp_path / name)


def test_a_store_is_readable_by_its_user_alone(store: SqliteStore, tmp_path: Path):
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


def test_a_token_is_proved_by_all_of_it_and_kept_as_a_hash(store: SqliteStore, tmp_path: Path):
    text, record = create_token("me", frozenset({Scope.JUDGE, Scope.ANSWERS_READ}), 100.0, 50.0)
    store.add_token(record)
    found = store.token(identity_of(text))
    assert found == record
    assert is_proved(text, found, 149.0)
    assert not is_proved(text, found, 150.0)
    assert not is_proved(text[:-1], found, 101.0)
    assert not is_proved(text, None, 101.0)
    assert store.revoke_token(record.id)
    assert not is_proved(text, store.token(record.id), 101.0)
    assert not store.revoke_token("nobody")
    assert text.encode() not in (tmp_path / "store.sqlite").read_bytes() + (tmp_path / "store.sqlite-wal").read_bytes()


@pytest.mark.parametrize(("text", "seconds"), [("30d", 2_592_000), ("12h", 43200), ("45s", 45), ("never", None)])
def test_durations_are_short_words(text: str, seconds: float | None):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "3", "d", "3 d", "-1d", "1e9d", "soon"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(InputError, match="30d"):
        seconds_of(text)
