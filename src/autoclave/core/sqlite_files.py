"""SQLite files that several threads and processes write to: with a write-ahead log, and patience for one another."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from autoclave.core.closing import Closing
from autoclave.core.errors import InputError

_PATIENCE_S = 60.0
_PAUSE_S = 0.01
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def open_database(path: Path, synchronous: Literal["NORMAL", "FULL"]) -> sqlite3.Connection:
    """A connection without transactions of its own making, which threads may share under a lock.

    With `FULL` a commit is durable against a power cut, with `NORMAL` against the death of the process.

    Raises sqlite3.Error: it is no database, or cannot be used.
    """
    connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # SQLite does not wait here while another one opens a new file
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > until:
                connection.close()
                raise
            time.sleep(_PAUSE_S)
        except sqlite3.Error:
            connection.close()
            raise
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Run a block as one transaction that writes; roll it back if the block or its commit raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself where a disk is full
            connection.execute("ROLLBACK")
        raise


class KeptTexts(Closing):
    """Texts by keys, in the table of the name `what`. Safe to use from several threads and processes.

    What was put is durable against the death of the process; a power cut can take the last moments.

    Raises InputError: by all methods: the file is damaged, or nothing can be written there.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._lock = threading.Lock()
        self._get = f"SELECT * FROM {what} WHERE key = ?"
        self._put = f"INSERT OR REPLACE INTO {what} VALUES (?, ?)"
        self._complaint = f"{path}: {what} cannot be kept there"
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = open_database(path, "NORMAL")
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {what} (key BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID"
            )

    def get(self, key: bytes) -> str | None:
        with self._lock, self._explained():
            row = self._connection.execute(self._get, (key,)).fetchone()
        return None if row is None else row[1]

    def put(self, key: bytes, text: str) -> None:
        with self._lock, self._explained():
            self._connection.execute(self._put, (key, text))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"{self._complaint} ({error}); make room, remove it, or set AUTOCLAVE_CACHE to another folder"
            ) from None
