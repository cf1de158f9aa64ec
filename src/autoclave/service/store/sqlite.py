"""Store in one SQLite file with a write-ahead log, for one server.

Commits do not wait for the disk (`synchronous = NORMAL`): they survive the death of the process; a power cut can lose
the last ones, and clients then retry with the same idempotency keys. All threads share one connection.
"""

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.core.sqlite_files import open_database, transaction
from autoclave.service.store.records import Event, StoreUnavailable
from autoclave.service.store.schema import SQLITE, VERSION, refusal, statements
from autoclave.service.store.sql import Store

_PATIENCE_MS = 5000
"""Requests of this server wait so long for a process that has locked the file."""
_log = logging.getLogger(__name__)


class SqliteStore(Store):
    """Store in a file."""

    NOW = "((julianday('now') - 2440587.5) * 86400.0)"
    LOCKED = FREE = ""  # a transaction that writes has the whole file
    COLUMNS = "SELECT name FROM pragma_table_info(?)"

    def __init__(self, path: Path) -> None:
        """Open the file, or create it readable by this user alone.

        Raises InputError: it cannot be opened, is not a store, or has another version of the tables.
        """
        self.node = secrets.token_urlsafe(12)
        self._lock = threading.RLock()
        self._subscribers: list[Callable[[Event], None]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # holds hashes and answers
            self._database = open_database(path, "NORMAL")
            self._prepare(path)
        except (OSError, sqlite3.Error, StoreUnavailable) as error:
            raise InputError(f"store {path}: cannot be used ({error}). Fix: use another file") from None

    def _prepare(self, path: Path) -> None:
        self._database.execute("PRAGMA foreign_keys = ON")
        self._database.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        with self._changing():  # another process may create the tables too
            version = self._value("PRAGMA user_version")
            if version not in (0, VERSION):
                raise InputError(f"store {path}: {refusal(version)}")
            for statement in statements(SQLITE) if version == 0 else ():
                self._database.execute(statement)
            self._add_to_tables(SQLITE)
            self._database.execute(f"PRAGMA user_version = {VERSION}")

    def join(self) -> None:
        """Forget former nodes: one server has the file."""
        with self._changing():
            self._run("DELETE FROM nodes")

    def subscribe(self, on_event: Callable[[Event], None]) -> None:
        self._subscribers.append(on_event)

    def close(self) -> None:
        with self._lock:
            self._subscribers.clear()
            self._database.close()

    @contextlib.contextmanager
    def _changing(self) -> Generator[list[Event]]:
        events: list[Event] = []
        with self._used(), transaction(self._database):
            yield events
        for event in dict.fromkeys(events):
            for on_event in self._subscribers:
                on_event(event)

    @contextlib.contextmanager
    def _used(self) -> Generator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.OperationalError as error:  # locked, full, gone
                _log.warning("the store does not respond: %s", error)
                raise StoreUnavailable from None

    def _lock_queue(self) -> None:
        pass  # the transaction has the whole file

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._used():
            return self._database.execute(statement, values).fetchall()

    def _run(self, statement: str, *values: Any) -> int:
        return self._database.execute(statement, values).rowcount

    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._database.executemany(statement, rows)
