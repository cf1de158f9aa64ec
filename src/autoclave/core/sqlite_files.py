"""SQLite files that several threads and processes write to: with a write-ahead log, and patience for one another."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Literal

_PATIENCE_S = 60.0
_PAUSE_S = 0.01
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def open_database(path: Path, synchronous: Literal["NORMAL", "FULL"]) -> sqlite3.Connection:
    """A connection without transactions of its own making, which threads may share under a lock.

    With `FULL` a commit is durable against a power cut, with `NORMAL` against the death of the process.

    Raises:
        sqlite3.Error: it is no database, or cannot be used.
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
