"""What is special of SQLite files."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import apsw
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from tests.runtime.databases.shops import Shop, done, make_sqlite_shop, session_on


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


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    settings = DatabaseConnection(engine="sqlite", path=f"{tmp_path / 'no.db'}")
    with session_on({"shop": settings}, tmp_path / "state") as session, pytest.raises(InputError, match="no such file"):
        session.told()


def test_what_is_no_database_is_told(tmp_path: Path):
    (tmp_path / "no.db").write_text("not a database at all, but long enough to be read as the head of one" * 20)
    settings = DatabaseConnection(engine="sqlite", path=f"{tmp_path / 'no.db'}")
    with session_on({"shop": settings}, tmp_path / "state") as session, pytest.raises(InputError, match="no SQLite"):
        session.told()


def test_a_file_that_may_be_read_only_is_told(tmp_path: Path):
    shop = make_sqlite_shop(tmp_path)
    with shop.session() as session:
        engine = session.actions.managers["sql"]._databases.engine("shop")
        engine._acting.execute("PRAGMA query_only = ON")
        with pytest.raises(HostError, match="may be read only"):
            done(session, "DELETE FROM note")


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
