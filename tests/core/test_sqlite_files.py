"""SQLite files that several processes write to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from autoclave.core.sqlite_files import open_database, transaction


def test_a_block_that_raises_writes_nothing_and_the_next_one_can_begin(tmp_path: Path):
    connection = open_database(tmp_path / "a", "NORMAL")
    connection.execute("CREATE TABLE found (value)")
    with pytest.raises(sqlite3.Error), transaction(connection):
        connection.executemany("INSERT INTO found VALUES (?)", [(1,), ([],)])
    with transaction(connection):
        connection.execute("INSERT INTO found VALUES (2)")
    assert connection.execute("SELECT value FROM found").fetchall() == [(2,)]
    connection.close()


def test_a_commit_that_fails_leaves_no_transaction_open(tmp_path: Path):
    connection = open_database(tmp_path / "a", "NORMAL")
    connection.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE a (id INTEGER PRIMARY KEY);"
        "CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)"
    )
    with pytest.raises(sqlite3.IntegrityError), transaction(connection):
        connection.execute("INSERT INTO b VALUES (1)")
    assert not connection.in_transaction
    connection.close()
