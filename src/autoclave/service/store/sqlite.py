"""A store in one SQLite file, with a write-ahead log, for one server.

Commits do not wait for the disk (`synchronous = NORMAL`): what was written survives the death of the process at any
moment; a power cut can take the last moments, after which clients ask again under the same idempotency keys. One
connection is used by all threads in turn.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from autoclave.core import InputError, Problem
from autoclave.service.store.interface import (
    Batch,
    JobSpec,
    JobState,
    KeyReused,
    ProblemRecord,
    StartedJob,
    Waiting,
)
from autoclave.service.store.migrations import MIGRATIONS
from autoclave.service.store.records import about, body_of, options_of, problem_of, record_of, spec_of
from autoclave.service.tokens import Scope, TokenRecord

_UNFINISHED = "state IN ('accepted', 'running')"
_JOB_COLUMNS = "jobs.id, jobs.batch, batches.client, place, label, state, sequence, verdict"
_AT_ONCE = 500
"""Values in one statement."""


class SqliteStore:
    """A `Store` in a file."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it, readable by this user alone, and bring its schema up to date.

        Raises:
            InputError: it cannot be opened, is no store, or is of a later version.
        """
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # holds hashes and answers
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30.0)
            self._prepare(path)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"store {path}: cannot be used ({error}); give another file") from None
        self._sequence = self._value("SELECT coalesce(max(sequence), 0) FROM jobs")

    def _prepare(self, path: Path) -> None:
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 30000"):
            self._database.execute(f"PRAGMA {setting}")
        with self._changing():  # another process may be doing the same
            version = self._value("PRAGMA user_version")
            if version > len(MIGRATIONS):
                raise InputError(
                    f"store {path}: has version {version} of the schema, and this program knows {len(MIGRATIONS)}; "
                    "use the newer program, or give another file"
                )
            for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
                for statement in step:
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {number}")

    def close(self) -> None:
        with self._lock:
            self._database.close()

    # --- Problems --------------------------------------------------------------------------------------------------

    def put_problems(self, problems: Iterable[Problem]) -> list[bool]:
        rows: list[tuple[Any, ...]] = []
        for problem in problems:
            body = body_of(problem)
            packed = zstandard.ZstdCompressor(level=3).compress(body)
            rows.append((problem.digest, about(problem), problem.statement, packed, len(body), time.time()))
        added: list[bool] = []
        with self._changing():
            for row in rows:
                there = self._row("SELECT is_deleted FROM problems WHERE digest = ?", row[0])
                if there is None:
                    self._database.execute("INSERT INTO problems VALUES (?, ?, ?, ?, ?, ?, 0)", row)
                elif there[0]:
                    self._database.execute("UPDATE problems SET is_deleted = 0 WHERE digest = ?", (row[0],))
                added.append(there is None or bool(there[0]))
        return added

    def problem(self, digest: str) -> Problem | None:
        row = self._row("SELECT body FROM problems WHERE digest = ?", digest)
        return None if row is None else problem_of(zstandard.ZstdDecompressor().decompress(row[0]))

    def problem_records(self, digests: Sequence[str]) -> list[ProblemRecord]:
        found: list[ProblemRecord] = []
        for start in range(0, len(digests), _AT_ONCE):
            part = digests[start : start + _AT_ONCE]
            rows = self._rows(
                "SELECT digest, about, size, created, statement FROM problems "
                f"WHERE NOT is_deleted AND digest IN ({_marks(part)})",
                *part,
            )
            found += [record_of(*row) for row in rows]
        return found

    def list_problems(self, after: str, limit: int) -> list[ProblemRecord]:
        rows = self._rows(
            "SELECT digest, about, size, created FROM problems WHERE NOT is_deleted AND digest > ? "
            "ORDER BY digest LIMIT ?",
            after,
            limit,
        )
        return [record_of(*row) for row in rows]

    def delete_problem(self, digest: str) -> bool:
        with self._changing():
            hidden = self._database.execute(
                "UPDATE problems SET is_deleted = 1 WHERE digest = ? AND NOT is_deleted", (digest,)
            ).rowcount
            self._remove_deleted()
        return bool(hidden)

    def _remove_deleted(self) -> None:
        self._database.execute(
            "DELETE FROM problems WHERE is_deleted AND NOT EXISTS "
            f"(SELECT 1 FROM jobs WHERE jobs.digest = problems.digest AND {_UNFINISHED})"
        )

    # --- Tokens ----------------------------------------------------------------------------------------------------

    def add_token(self, token: TokenRecord) -> None:
        scopes = " ".join(sorted(token.scopes))
        row = (token.id, token.label, token.hash, scopes, token.created, token.expires, token.is_revoked)
        with self._changing():
            self._database.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def token(self, id: str) -> TokenRecord | None:
        row = self._row("SELECT * FROM tokens WHERE id = ?", id)
        return None if row is None else _token_of(row)

    def tokens(self) -> list[TokenRecord]:
        return [_token_of(row) for row in self._rows("SELECT * FROM tokens ORDER BY created, id")]

    def revoke_token(self, id: str) -> bool:
        with self._changing():
            return bool(self._database.execute("UPDATE tokens SET is_revoked = 1 WHERE id = ?", (id,)).rowcount)

    # --- Jobs ------------------------------------------------------------------------------------------------------

    def add_batch(self, batch: Batch, jobs: Sequence[tuple[str, JobSpec]]) -> Batch:
        with self._changing():
            if before := self.batch_of_key(batch.client, batch.key):
                if before.fingerprint != batch.fingerprint:
                    raise KeyReused(batch.key)
                return before
            self._database.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    batch.id,
                    batch.client,
                    batch.key,
                    batch.fingerprint,
                    batch.priority,
                    batch.created,
                    batch.deadline,
                    batch.keep_s,
                ),
            )
            self._database.executemany(
                "INSERT INTO jobs (id, batch, place, digest, label, source, options) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (id, batch.id, place, spec.digest, spec.label, spec.source, options_of(spec))
                    for place, (id, spec) in enumerate(jobs)
                ),
            )
        return batch

    def batch_of_key(self, client: str, key: str) -> Batch | None:
        row = self._row("SELECT * FROM batches WHERE client = ? AND idempotency_key = ?", client, key)
        return None if row is None else Batch(*row)

    def batch(self, id: str) -> Batch | None:
        row = self._row("SELECT * FROM batches WHERE id = ?", id)
        return None if row is None else Batch(*row)

    def unfinished(self) -> list[Waiting]:
        rows = self._rows(
            "SELECT jobs.id, batch, client, priority, deadline FROM jobs JOIN batches ON batches.id = batch "
            f"WHERE {_UNFINISHED} ORDER BY number"
        )
        return [Waiting(*row) for row in rows]

    def start(self, ids: Sequence[str]) -> list[StartedJob]:
        with self._changing():
            marks = _marks(ids)
            self._database.execute(
                f"UPDATE jobs SET state = 'running', starts = starts + 1 WHERE id IN ({marks}) AND {_UNFINISHED}", ids
            )
            rows = self._rows(
                "SELECT jobs.id, batch, client, digest, label, source, options, starts FROM jobs "
                f"JOIN batches ON batches.id = batch WHERE jobs.id IN ({marks}) AND state = 'running' ORDER BY number",
                *ids,
            )
        return [StartedJob(id, batch, client, spec_of(*spec), starts) for id, batch, client, *spec, starts in rows]

    def finish(self, verdicts: Sequence[tuple[str, str]]) -> list[str]:
        with self._changing():
            return [id for id, verdict in verdicts if self._end(id, "done", verdict)]

    def cancel(self, ids: Sequence[str]) -> list[str]:
        with self._changing():
            return [id for id in ids if self._end(id, "cancelled", None)]

    def _end(self, id: str, state: str, verdict: str | None) -> bool:
        """The program is not needed any more, so it goes."""
        ended = self._database.execute(
            f"UPDATE jobs SET state = ?, verdict = ?, sequence = ?, source = NULL WHERE id = ? AND {_UNFINISHED}",
            (state, verdict, self._sequence + 1, id),
        ).rowcount
        self._sequence += ended
        return bool(ended)

    def job(self, id: str) -> JobState | None:
        row = self._row(f"SELECT {_JOB_COLUMNS} FROM jobs JOIN batches ON batches.id = batch WHERE jobs.id = ?", id)
        return None if row is None else JobState(*row)

    def jobs_of(self, batch: str) -> list[JobState]:
        columns = _JOB_COLUMNS.replace("verdict", "NULL")
        rows = self._rows(
            f"SELECT {columns} FROM jobs JOIN batches ON batches.id = batch WHERE batch = ? ORDER BY place", batch
        )
        return [JobState(*row) for row in rows]

    def ended(self, batch: str, after: int) -> list[JobState]:
        rows = self._rows(
            f"SELECT {_JOB_COLUMNS} FROM jobs JOIN batches ON batches.id = batch "
            "WHERE batch = ? AND sequence > ? ORDER BY sequence",
            batch,
            after,
        )
        return [JobState(*row) for row in rows]

    def num_unfinished(self, batch: str) -> int:
        return self._value(f"SELECT count(*) FROM jobs WHERE batch = ? AND {_UNFINISHED}", batch)

    def purge(self, before: float) -> int:
        with self._changing():
            gone = self._database.execute(
                "DELETE FROM batches WHERE created < ? AND NOT EXISTS "
                f"(SELECT 1 FROM jobs WHERE jobs.batch = batches.id AND {_UNFINISHED})",
                (before,),
            ).rowcount
            self._remove_deleted()
        return gone

    # --- Statements ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Generator[None]:
        """One transaction; undone if it raises."""
        with self._lock:
            sequence = getattr(self, "_sequence", 0)
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                self._sequence = sequence
                raise

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()

    def _row(self, statement: str, *values: Any) -> Any:
        with self._lock:
            return self._database.execute(statement, values).fetchone()

    def _value(self, statement: str, *values: Any) -> int:
        return self._row(statement, *values)[0]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _token_of(row: Sequence[Any]) -> TokenRecord:
    id, label, hash, scopes, created, expires, is_revoked = row
    return TokenRecord(
        id, label, hash, frozenset(Scope(name) for name in scopes.split()), created, expires, bool(is_revoked)
    )
