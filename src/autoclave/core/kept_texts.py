"""Texts under keys in one SQLite file: what caches that outlive a process stand on."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

from autoclave.core.closing import Closing
from autoclave.core.errors import InputError
from autoclave.core.sqlite_files import open_database


class KeptTexts(Closing):
    """Texts by keys, in the table of the name `what`. Safe to use from several threads and processes.

    What was put is durable against the death of the process; a power cut can take the last moments.

    Raises:
        InputError: by all methods: the file is damaged, or nothing can be written there.
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
        """The text under this key."""
        with self._lock, self._explained():
            row = self._connection.execute(self._get, (key,)).fetchone()
        return None if row is None else row[1]

    def put(self, texts: Sequence[tuple[bytes, str]]) -> None:
        """Keep texts under their keys, all of them or none."""
        with self._lock, self._explained(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._put, texts)

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
