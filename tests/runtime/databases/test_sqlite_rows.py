"""Rows of odd tables of SQLite come back, are done again, and come back again, to the last bit."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw
import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import Choice, NotUndone
from tests.runtime.databases.shops import Shop, done, sqlite_content
from tests.runtime.databases.test_images import check_both_ways

ODD = {
    "a key that is no rowid though it looks like one": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY DESC, x);"
        "INSERT INTO t (rowid, id, x) VALUES (7, 100, 'a'), (9, 50, 'b'), (3, NULL, 'c')",
        ("DELETE FROM t",),
    ),
    "the same key, changed": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY DESC, x); INSERT INTO t (rowid, id) VALUES (7, 100), (9, 50)",
        ("UPDATE t SET x = id WHERE id = 100",),
    ),
    "a rowid by a constraint of the table": (
        "CREATE TABLE t (id INTEGER, x, PRIMARY KEY (id DESC)); INSERT INTO t VALUES (7, 100), (9, 50)",
        ("DELETE FROM t",),
    ),
    "a rowid of which columns have all other names": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, rowid, _rowid_, oid); INSERT INTO t VALUES (7, 1, 2, 3), (1, 7, 2, 3)",
        ("DELETE FROM t WHERE id = 7", "UPDATE t SET oid = 4"),
    ),
    "a key in other letters": (
        "CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, x); INSERT INTO t VALUES ('a', 1), ('b', 2)",
        ("UPDATE t SET k = 'A' WHERE k = 'a'",),
    ),
    "a key in other letters, without rowid": (
        "CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, x) WITHOUT ROWID; INSERT INTO t VALUES ('a', 1), ('b', 2)",
        ("UPDATE t SET k = 'A' WHERE k = 'a'",),
    ),
    "a key in other letters, replaced": (
        "CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, x); INSERT INTO t VALUES ('a', 1), ('b', 2)",
        ("REPLACE INTO t VALUES ('A', 9)",),
    ),
    "a key with spaces that do not count": (
        "CREATE TABLE t (k TEXT COLLATE RTRIM PRIMARY KEY, x); INSERT INTO t VALUES ('a', 1), ('b', 2)",
        ("UPDATE t SET k = 'a  ' WHERE k = 'a'",),
    ),
    "a key that is a number of another type": (
        "CREATE TABLE t (k PRIMARY KEY, x); INSERT INTO t VALUES (1, 1), ('b', 2)",
        ("UPDATE t SET k = 1.0 WHERE k = 1",),
    ),
    "keys of equal spelling, exchanged": (
        "CREATE TABLE t (k TEXT COLLATE NOCASE, l, x, PRIMARY KEY (k, l));"
        "INSERT INTO t VALUES ('a', 1, 1), ('A', 2, 2)",
        ("UPDATE t SET k = upper(k), x = 5 WHERE l = 1", "UPDATE t SET k = lower(k) WHERE l = 2"),
    ),
    "a column that came later, with a default": (
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, 2), (2, 3);"
        "ALTER TABLE t ADD COLUMN r REAL DEFAULT 5; ALTER TABLE t ADD COLUMN s TEXT DEFAULT 6;"
        "ALTER TABLE t ADD COLUMN n NUMERIC DEFAULT '7'; ALTER TABLE t ADD COLUMN z BLOB DEFAULT x'00ff'",
        ("UPDATE t SET b = 3 WHERE a = 1", "DELETE FROM t WHERE a = 2"),
    ),
}


def shop_of(folder: Path, made: str) -> Shop:
    path = folder / "odd.db"

    def others(statement: str) -> list[object]:
        with contextlib.closing(apsw.Connection(f"{path}")) as connection:
            return list(connection.execute(statement))

    others(made)
    settings = DatabaseConnection(engine="sqlite", path=f"{path}", lock_timeout_s=10)
    return Shop(settings, others, lambda: sqlite_content(path), folder / "state")


@pytest.mark.parametrize("case", ODD)
def test_odd_rows_come_back_and_go_again(tmp_path: Path, case: str):
    made, statements = ODD[case]
    check_both_ways(shop_of(tmp_path, made), statements)


def test_keys_that_are_null_are_brought_and_taken(tmp_path: Path):
    check_both_ways(
        shop_of(tmp_path, "CREATE TABLE odd (k TEXT PRIMARY KEY, v)"), ["INSERT INTO odd VALUES (NULL, 1), (NULL, 2)"]
    )


def test_a_name_cannot_begin_a_line_of_what_is_told(tmp_path: Path):
    shop = shop_of(tmp_path, 'CREATE TABLE "a\ntable main.fake" ("b\r\n  c\u2028" "TEXT\n\x1b" UNIQUE)')
    with shop.session() as session:
        told = session.told()
    assert len(told.splitlines()) == len(told.split("\n"))
    assert not any(line.startswith("table main.fake") for line in told.splitlines())
    assert "\\n" in told
    assert "\x1b" not in told


def test_rows_that_cannot_be_found_again_are_refused(tmp_path: Path):
    shop = shop_of(tmp_path, "CREATE TABLE t (rowid TEXT PRIMARY KEY, _rowid_, oid); INSERT INTO t VALUES (1, 2, 3)")
    with shop.session() as session, pytest.raises(InputError, match="all the names of the rowid"):
        session.propose({"do": "sql", "database": "shop", "statements": ["UPDATE t SET oid = 7"]})


def test_a_zero_in_a_statement_is_refused(tmp_path: Path):
    shop = shop_of(tmp_path, "CREATE TABLE t (a)")
    with shop.session() as session, pytest.raises(InputError, match="is zero"):
        session.propose({"do": "sql", "database": "shop", "statements": ["INSERT INTO t VALUES (1)\0; DROP TABLE t"]})


def test_keys_that_are_written_alike_are_keys_of_their_own(sqlite_shop: Shop):
    keys = ["9e999", "'Infinity'", "-9e999", "'-Infinity'", "1", "'1'", "x'31'", "1.5", "'1.5'", "'true'", "'null'"]
    keys += ["'[1]'", '\'{"b":"31"}\'', "'rowid 1'", "'\"a'", "'a'"]
    rows = ", ".join(f"({key}, {number})" for number, key in enumerate(keys))
    sqlite_shop.others(f"CREATE TABLE keyed (k PRIMARY KEY, v); INSERT INTO keyed VALUES {rows}")
    before = sqlite_shop.content()
    with sqlite_shop.session() as session:
        action = done(session, "UPDATE keyed SET v = v + 100")
        assert len(sqlite_shop.others("SELECT v FROM keyed WHERE v >= 100")) == len(keys)
        session.undo(action)
    assert sqlite_shop.content() == before


@pytest.mark.parametrize("clause", ["REPLACE", "IGNORE"])
@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY", "id TEXT PRIMARY KEY", "id"])
def test_a_constraint_that_settles_conflicts_takes_no_row_of_others(tmp_path: Path, key: str, clause: str):
    shop = shop_of(tmp_path, f"CREATE TABLE t ({key}, u UNIQUE ON CONFLICT {clause}); INSERT INTO t VALUES (1, 'a')")
    with shop.session() as session:
        action = done(session, "DELETE FROM t")
        shop.others("INSERT INTO t VALUES (9, 'a')")
        there = shop.content()
        with pytest.raises(NotUndone):
            session.undo(action)
    assert shop.content() == there


@pytest.mark.parametrize("again", ["", "; INSERT INTO t VALUES ('b', 7)"])
def test_a_row_is_forced_under_its_key_and_no_other_goes_for_it(tmp_path: Path, again: str):
    shop = shop_of(tmp_path, "CREATE TABLE t (k TEXT PRIMARY KEY, v); INSERT INTO t VALUES ('a', 1), ('b', 2)")
    with shop.session() as session:
        for statement in ("UPDATE t SET v = 9 WHERE k = 'b'", "DELETE FROM t WHERE k = 'b'"):
            action = done(session, statement)
            shop.others(f"DELETE FROM t WHERE k <> 'a'; INSERT INTO t VALUES ('z', 5){again}")  # at the rowid of b
            session.undo(action, on_conflict=Choice.FORCE)
            assert sorted(shop.others("SELECT * FROM t")) == [("a", 1), ("b", 2), ("z", 5)]
