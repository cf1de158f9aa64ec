"""What is special of SQLite files: their own tables, rows to the last bit, and what statements read."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import apsw
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, NotPermitted, NotUndone
from autoclave.runtime.policy.grants import Grant
from tests.runtime.databases.shops import Shop, done, make_sqlite_shop, session_on, sqlite_content
from tests.runtime.databases.test_images import check_both_ways


def test_with_a_write_ahead_log_as_without(tmp_path: Path):
    shop = make_sqlite_shop(tmp_path, wal=True)
    before = shop.content()
    with shop.session() as session, contextlib.closing(apsw.Connection(shop.settings.path)) as reader:
        reading = reader.execute("SELECT id FROM item")
        next(reading)  # somebody reads meanwhile
        action = done(session, "DELETE FROM kind")
        assert shop.content() != before
        session.undo(action)
    assert shop.content() == before


def test_what_is_no_database_is_told(tmp_path: Path):
    (tmp_path / "text").write_text("not a database at all, but long enough to be read as the head of one" * 20)
    for name, rule in (("nothing", "no such file"), ("text", "no SQLite")):
        settings = DatabaseConnection(engine="sqlite", path=f"{tmp_path / name}")
        with session_on({"shop": settings}, tmp_path / "state") as session, pytest.raises(InputError, match=rule):
            session.told()


def test_rows_changed_by_a_virtual_table_are_found_by_it_again(sqlite_shop: Shop):
    find = "SELECT text FROM words WHERE words MATCH 'fox'"
    with sqlite_shop.session() as session:
        first = sqlite_shop.others(find)
        action = done(session, "UPDATE words SET text = 'the slow fox' WHERE words MATCH 'lazy'")
        assert len(sqlite_shop.others(find)) == 2
        session.undo(action)
        assert sqlite_shop.others(find) == first
        assert sqlite_shop.others("SELECT text FROM words WHERE words MATCH 'lazy'") == [("the lazy dog",)]
        sqlite_shop.others("INSERT INTO words (words) VALUES ('integrity-check')")


def test_triggers_that_call_themselves_are_heard(sqlite_shop: Shop):
    sqlite_shop.others(
        "CREATE TRIGGER chain AFTER DELETE ON part BEGIN DELETE FROM note; UPDATE item SET price = 0; END"
    )
    before = sqlite_shop.content()
    with sqlite_shop.session() as session:
        action = done(session, "DELETE FROM part WHERE id = 4")
        session.undo(action)
    assert sqlite_shop.content() == before


def test_foreign_keys_that_were_broken_before_do_not_stop_an_undo(sqlite_shop: Shop):
    sqlite_shop.others("PRAGMA foreign_keys = OFF; INSERT INTO review (item, text) VALUES (999, 'lost')")
    before = sqlite_shop.content()
    with sqlite_shop.session() as session:
        action = done(session, "DELETE FROM item WHERE id = 4")
        session.undo(action)
    assert sqlite_shop.content() == before


@pytest.mark.parametrize("after", ["; -- done", " ; /* done */ ;", " -- done", "; /* not closed", ";\n-- /* \n"])
def test_words_after_a_statement_are_no_statement(sqlite_shop: Shop, after: str):
    with sqlite_shop.session() as session:
        done(session, f"DELETE FROM log WHERE id = 1 OR 1 {after}", "INSERT INTO log VALUES ('x', 1)")


@pytest.mark.parametrize(
    "after", ["; -- x\nDELETE FROM note", "; /* a */ DELETE FROM note /* b */", ";--/*\nDROP TABLE x"]
)
def test_a_second_statement_is_none_of_the_words_after_the_first(sqlite_shop: Shop, after: str):
    with sqlite_shop.session() as session, pytest.raises(InputError, match="several"):
        done(session, f"INSERT INTO log VALUES ('x', 1) {after}")


def test_a_view_of_what_is_gone_stops_nothing(sqlite_shop: Shop):
    sqlite_shop.others("CREATE TABLE gone (a); CREATE VIEW of_gone AS SELECT a FROM gone; DROP TABLE gone")
    with sqlite_shop.session() as session:
        assert "of_gone" in session.told()
        done(session, "INSERT INTO log VALUES ('x', 1)")


@pytest.mark.parametrize(("wal", "which"), [(True, ""), (False, ""), (True, "-wal"), (True, "-shm")])
def test_a_file_that_is_replaced_under_the_session_is_told_and_nothing_is_done(tmp_path: Path, wal: bool, which: str):
    shop = make_sqlite_shop(tmp_path, wal=wal)
    with shop.session() as session:
        action = done(session, "DELETE FROM kind")
        path = Path(f"{shop.settings.path}{which}")
        copy = path.with_name("copy")
        shutil.copy(path, copy)
        os.replace(copy, path)
        for act in (
            lambda: done(session, "DELETE FROM note"),
            lambda: done(session, "DELETE FROM note", mode="transaction"),
            lambda: session.undo(action),
        ):
            with pytest.raises(HostError, match="was replaced while the session had it open"):
                act()


def test_a_log_that_others_begin_is_no_other_file(sqlite_shop: Shop):
    before = sqlite_shop.content()
    with sqlite_shop.session() as session:
        action = done(session, "DELETE FROM kind")
        sqlite_shop.others("PRAGMA journal_mode = WAL")
        session.undo(action)
        again = done(session, "DELETE FROM kind")
        sqlite_shop.others("PRAGMA wal_checkpoint(TRUNCATE)")
        session.undo(again)
    assert sqlite_shop.content() == before


ODD = {
    "keys that are null": (
        "CREATE TABLE odd (k TEXT PRIMARY KEY, v)",
        ("INSERT INTO odd VALUES (NULL, 1), (NULL, 2)",),
    ),
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


MADE = """
CREATE TABLE secret (v TEXT);
CREATE TABLE note (id INTEGER PRIMARY KEY, t TEXT);
CREATE TABLE parent (id INTEGER PRIMARY KEY, t TEXT);
CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES Parent (id));
CREATE VIEW shown AS SELECT v FROM secret;
CREATE TABLE with_trigger (a);
CREATE TRIGGER with_trigger_more AFTER INSERT ON with_trigger BEGIN
    UPDATE note SET t = NEW.a IN secret WHERE id = 1;
END;
INSERT INTO secret VALUES ('canary'); INSERT INTO note VALUES (1, 'a'); INSERT INTO parent VALUES (1, 'p'), (2, 'q');
"""
BY_SYNTAX = [
    ("UPDATE note SET t = 'canary' IN secret WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'canary' IN Secret WHERE id = 1", "secret"),
    ("INSERT INTO note VALUES (2, 'canary' IN secret)", "secret"),
    ("INSERT INTO note VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET t = 'canary' IN secret", "secret"),
    ("UPDATE note SET t = EXISTS (VALUES ('canary' IN secret)) WHERE id = 1", "secret"),
    ("UPDATE note SET t = (SELECT v FROM secret) WHERE id = 1", "secret"),
    ("UPDATE note SET t = (SELECT count(*) FROM secret) WHERE id = 1", "secret"),
    ("UPDATE note SET t = EXISTS (SELECT 1 FROM SECRET) WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'x' WHERE id = 1 RETURNING (SELECT v FROM secret)", "secret"),
    ("WITH c AS (SELECT v FROM secret) INSERT INTO note (t) SELECT v FROM c", "secret"),
    ("UPDATE note SET t = v FROM secret", "secret"),
    ("UPDATE note SET t = 'canary' IN shown WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'canary' IN shown WHERE id = 1", "shown"),
    ("INSERT INTO with_trigger VALUES ('canary')", "secret"),
    ("INSERT INTO note (t) SELECT value FROM json_each('[1]')", "json_each"),
    ("INSERT INTO note (t) SELECT sql FROM sqlite_schema", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT sql FROM main.SQLITE_MASTER", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT count(*) FROM sqlite_master", "sqlite_schema"),
    ("UPDATE note SET t = 'x' IN (SELECT name FROM sqlite_schema) WHERE id = 1", "sqlite_schema"),
    ("CREATE TABLE copy AS SELECT sql FROM sqlite_schema", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT pageno FROM dbstat", "dbstat"),
]
ALLOWED = [(name, ("create", "modify")) for name in ("note", "with_trigger")] + [("copy", ("define", "create"))]


def mode_of(statement: str) -> str:
    return "transaction" if statement.startswith("CREATE") else "images"


@pytest.fixture
def small(tmp_path: Path) -> Shop:
    path = tmp_path / "small.db"
    with contextlib.closing(apsw.Connection(f"{path}")) as made:
        made.execute(MADE)
    settings = DatabaseConnection(engine="sqlite", path=f"{path}", lock_timeout_s=0.3)
    return Shop(settings, lambda statement: None, lambda: None, tmp_path / "state")


def granting(shop: Shop, *readable: str):
    session = session_on({"shop": shop.settings}, shop.state, granted=False)
    for name, verbs in [*ALLOWED, *((each, ("read",)) for each in ("note", *readable))]:
        session.permissions.grant(
            Grant(resources=(f"databases/shop/main/{name}",), verbs=verbs, minimum_guarantee=Guarantee.NONE)
        )
    return session


@pytest.mark.parametrize(("statement", "name"), BY_SYNTAX)
def test_a_table_that_is_read_needs_a_grant_by_whatever_syntax(small: Shop, statement: str, name: str):
    others = {"secret", "shown", "json_each", "sqlite_schema", "dbstat", "with_trigger"} - {name}
    with granting(small, *others) as session, pytest.raises(NotPermitted, match=f"read 'databases/shop/main/{name}'"):
        done(session, statement, mode=mode_of(statement))


@pytest.mark.parametrize(("statement", "name"), BY_SYNTAX)
def test_what_is_read_is_told_where_it_is_granted(small: Shop, statement: str, name: str):
    with small.session() as session:
        plan = session.plan({"do": "sql", "database": "shop", "statements": [statement], "mode": mode_of(statement)})
    assert ("read", f"databases/shop/main/{name}") in {(each.verb, each.resource) for each in plan.request.accesses}


def test_a_table_that_a_virtual_one_reads_while_it_runs_needs_a_grant(small: Shop):
    with contextlib.closing(apsw.Connection(small.settings.path)) as made:
        made.execute("CREATE VIRTUAL TABLE found USING fts5 (v, content = 'secret')")
    rebuild = {"do": "sql", "database": "shop", "statements": ["INSERT INTO found (found) VALUES ('rebuild')"]}
    with granting(small) as session:
        session.permissions.grant(
            Grant(resources=("databases/shop/main/found*",), verbs=("*",), minimum_guarantee=Guarantee.NONE)
        )
        with pytest.raises(NotPermitted, match="read 'databases/shop/main/secret'"):
            session.propose(rebuild)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE note SET t = 'x' WHERE id = 1",
        "INSERT INTO note (t) VALUES ('x')",
        "CREATE TABLE copy (a INTEGER PRIMARY KEY AUTOINCREMENT, b UNIQUE)",
        "CREATE TABLE copy AS SELECT t FROM note",
        "WITH c AS (SELECT t FROM note) INSERT INTO note (t) SELECT count(*) FROM c",
    ],
)
def test_what_is_not_read_needs_no_grant(small: Shop, statement: str):
    with granting(small) as session:
        done(session, statement, mode=mode_of(statement))


@pytest.mark.parametrize(
    "statement", ["DROP TABLE secret", "ALTER TABLE note ADD COLUMN u", "ALTER TABLE child RENAME TO kid"]
)
def test_a_definition_that_looks_at_the_schema_itself_reads_nothing(small: Shop, statement: str):
    with small.session() as session:
        plan = session.plan({"do": "sql", "database": "shop", "statements": [statement], "mode": "transaction"})
    assert not [each.resource for each in plan.request.accesses if "sqlite_" in each.resource]


def test_a_row_that_refers_depends_on_the_row_it_refers_to_and_not_on_its_table(small: Shop):
    with small.session() as session:
        first = done(session, "INSERT INTO parent VALUES (3, 'r')")
        done(session, "INSERT INTO child VALUES (1, 1)")
        session.undo(first)  # no other action needs it
        again = done(session, "INSERT INTO parent VALUES (3, 'r')")
        done(session, "INSERT INTO child VALUES (2, 3)")
        with pytest.raises(InputError, match="came later"):
            session.undo(again)


def test_a_row_named_in_another_spelling_of_its_key_is_the_same_row(small: Shop):
    with small.session() as session:
        first = done(session, "INSERT INTO note VALUES (7, 'seven')")
        done(session, "UPDATE note SET t = 'x' WHERE id IN ('7.0', 1) AND t <> 'seven'")
        with pytest.raises(InputError, match="came later"):
            session.undo(first)
