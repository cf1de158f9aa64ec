"""Processes and connections that die at any step, and open transactions: an action is done or not, as recorded."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import OpenTransactions
from autoclave.runtime.databases.mariadb.connection import Server as MariadbServer
from autoclave.runtime.databases.modes import ImagesMode, KeptRows
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.sqlite.engine import SqliteDatabase
from autoclave.runtime.interface import InDoubt
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.session import Session
from autoclave.runtime.states import STANDING, ActionState
from tests.postgresql import Postgres
from tests.runtime.databases.shops import (
    Shop,
    done,
    in_mariadb_too,
    in_mariadb_too_if_long,
    make_sqlite_shop,
    of_servers,
    session_on,
)
from tests.runtime.deaths import dies_within

S = ActionState
NOWHERE = Standing("none", S.PROPOSED, 0, 0.0, {}, {}, None)
STATEMENTS = ("DELETE FROM kind WHERE name = 'book'", "INSERT INTO note VALUES ('new', 1)")


def dies_at(deadly: int, shop: Shop, work: Callable[[Session], object]) -> bool:
    """Whether a process that is killed at its so-manieth event came so far. Events are writes and commits, before and
    after each.
    """

    def acting(dying: Callable[..., Any]) -> None:
        patched = [(Journal, "_add"), (Journal, "seal"), (KeptRows, "_write"), (OpenTransactions, "end")]
        for owner, name in (*patched, *((engine, "commit") for engine in (Server, MariadbServer, SqliteDatabase))):
            setattr(owner, name, dying(getattr(owner, name)))
        with shop.session() as session:
            work(session)

    return dies_within(deadly, acting)


@in_mariadb_too_if_long
def test_killed_at_every_event_an_action_is_done_or_not(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        action = done(session, *STATEMENTS)
        after = shop.content()
        session.undo(action)
    seen = set()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: done(session, *STATEMENTS))
        with shop.session() as session:
            last = session.journal.standings()[-1]
            assert last.state in (S.PROPOSED, S.APPROVED, S.EXECUTED, S.FAILED, S.UNDONE)
            assert shop.content() == (after if last.state is S.EXECUTED else before), (deadly, last.state)
            seen.add(last.state)
            if last.state is S.EXECUTED:
                session.undo(last.action)
            assert shop.content() == before
            assert session.audit() == []
        if not was_killed:
            break
    assert seen >= {S.PROPOSED, S.APPROVED, S.EXECUTED, S.FAILED}


@in_mariadb_too_if_long
def test_killed_at_every_event_of_undo_redo_and_commit_they_come_to_their_end(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        action = done(session, *STATEMENTS)
    after = shop.content()
    for verb, ended, wanted, other in (("undo", {S.UNDONE}, before, after), ("redo", STANDING, after, before)):
        for deadly in itertools.count(1):
            was_killed = dies_at(deadly, shop, lambda session, verb=verb: getattr(session, verb)(action))
            with shop.session() as session:
                is_over = session.journal.standing(action).state in ended
                assert shop.content() == (wanted if is_over else other), (verb, deadly)
                if is_over and was_killed:  # and once more from the beginning
                    (session.redo if verb == "undo" else session.undo)(action)
                    assert shop.content() == other
            if not was_killed:
                break
        assert deadly > 5
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: session.commit(action))
        with shop.session() as session:
            if session.journal.standing(action).state is S.COMMITTED:
                break
        assert was_killed
    assert shop.content() == after
    assert not (shop.state / "rows" / action).exists()


def test_killed_at_every_event_a_held_action_is_rolled_back(postgres_shop: Shop):
    shop, before = postgres_shop, postgres_shop.content()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: done(session, *STATEMENTS, mode="transaction"))
        with shop.session() as session:
            last = (session.journal.standings() or [NOWHERE])[-1]
            assert last.state in (S.PROPOSED, S.APPROVED, S.FAILED, S.UNDONE)
            assert shop.content() == before
        if not was_killed:
            break


@in_mariadb_too_if_long
def test_killed_at_every_event_of_its_commit_a_held_action_is_committed_or_undone(shop: Shop):
    for deadly in itertools.count(1):
        statement = f"INSERT INTO kind (name) VALUES ('{deadly}')"

        def work(session: Session, statement: str = statement) -> None:
            session.commit(done(session, statement, mode="transaction"))

        was_killed = dies_at(deadly, shop, work)
        with shop.session() as session:
            last = (session.journal.standings() or [NOWHERE])[-1]
            if last.state is S.EXECUTED:  # the commit was begun
                session.commit(last.action)
            is_committed = last is not NOWHERE and session.journal.standing(last.action).state is S.COMMITTED
        assert [int(n) for (n,) in shop.others(f"SELECT count(*) FROM kind WHERE name = '{deadly}'")] == [is_committed]
        if not was_killed:
            assert is_committed
            break


class Cutting:
    """Cuts the way to the server at the next commit that is armed; `is_heard`: after the server has committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type[Any]) -> None:
        whole, self.is_armed, self.is_heard = owner.commit, False, True

        def commit(server: Any, connection: Any) -> None:
            if self.is_armed:
                self.is_armed = False
                if self.is_heard and owner is MariadbServer:
                    whole(server, connection)
                elif self.is_heard:
                    connection.pgconn.send_query(b"COMMIT")
                    connection.pgconn.flush()
                    assert select.select([connection.fileno()], [], [], 20.0)[0]  # it has answered, unread
                number = connection._sock.fileno() if owner is MariadbServer else connection.fileno()
                with socket.socket(fileno=os.dup(number)) as way:
                    way.shutdown(socket.SHUT_RDWR)
            whole(server, connection)

        monkeypatch.setattr(owner, "commit", commit)


@of_servers
@pytest.mark.parametrize("is_heard", [True, False], ids=["committed", "not committed"])
def test_a_connection_lost_while_it_commits_is_looked_into(shop: Shop, monkeypatch: pytest.MonkeyPatch, is_heard: bool):
    before = shop.content()
    cutting = Cutting(monkeypatch, MariadbServer if shop.schema == "shop" else Server)
    cutting.is_heard = is_heard
    with shop.session() as session:
        cutting.is_armed = True
        if not is_heard:
            with pytest.raises(InputError, match="it was not done"):
                done(session, *STATEMENTS)
            assert shop.content() == before
            assert session.journal.standings()[-1].state is S.FAILED
            return
        action = done(session, *STATEMENTS)
        assert session.journal.standing(action).state is S.EXECUTED
        assert shop.content() != before
        cutting.is_armed = True
        session.undo(action)
        assert session.journal.standing(action).state is S.UNDONE
        assert shop.content() == before


@of_servers
def test_a_server_that_stops_is_told_and_nothing_is_left_in_between(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        action = done(session, *STATEMENTS)
        shop.server.stop()
        with pytest.raises(HostError, match="does not answer"):
            session.undo(action)
        shop.server.start()
    with shop.session() as session:
        session.undo(action)
        assert shop.content() == before


def test_a_number_of_a_transaction_that_was_lost_in_a_crash_is_not_believed(postgres_shop: Shop, server: Postgres):
    """The server may give it to somebody else. So the rows are looked at, too."""
    with postgres_shop.session() as session:
        action = done(session, *STATEMENTS)
        session.undo(action)
        manager = session.actions.manager_of(session.journal.standing(action))
        effect, mark = manager._kept.get(action, "done"), manager._kept.get_mark(action, "done")
        engine = manager._databases.engine("shop")
        assert engine.was_committed(mark, effect)
        assert not engine.was_committed({**mark, "started": "before a crash"}, effect)
        session.redo(action)
        assert engine.was_committed({**mark, "started": "before a crash"}, effect)


@in_mariadb_too
def test_a_full_disk_stops_an_action_before_it_is_committed(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    before = shop.content()
    with shop.session() as session:

        def full(*_: object) -> None:
            raise HostError("the disk is full")

        monkeypatch.setattr(KeptRows, "_write", full)
        with pytest.raises(HostError, match="the disk is full"):
            done(session, *STATEMENTS)
        assert shop.content() == before
        assert session.journal.standings()[-1].state is S.FAILED


@in_mariadb_too
def test_the_journal_holds_no_rows(shop: Shop):
    with shop.session() as session:
        action = done(session, "DELETE FROM item WHERE id = 4")
        session.undo(action)
    with contextlib.closing(sqlite3.connect(shop.state / "journal.sqlite")) as journal:
        (text,) = journal.execute("SELECT group_concat(body) FROM records").fetchone()
    assert "canary" not in text


@pytest.mark.parametrize(("verb", "doubt"), [("undo", S.UNDO_IN_DOUBT), ("redo", S.IN_DOUBT)])
def test_what_is_unforeseen_leaves_an_action_in_doubt_and_others_go_on(shop: Shop, verb: str, doubt: ActionState):
    with shop.session() as session:
        action = done(session, *STATEMENTS)
        if verb == "redo":
            session.undo(action)
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: getattr(session, verb)(action))
        assert was_killed
        with Journal(shop.state / "journal.sqlite", shop.state / "checkpoints" / "signed") as journal:
            if journal.standing(action).state in (S.UNDOING, S.REDOING):
                break
    (shop.state / "rows" / action / "done.json").write_text("{}")
    for _ in range(2):
        with shop.session() as session:
            standing = session.journal.standing(action)
            assert standing.state is doubt
            assert "ValueError" in standing.body["reason"]
            done(session, "UPDATE place SET item = item || 'x' WHERE shelf = 'A'")


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_what_a_person_declares_undone_or_redone_goes_on(shop: Shop, monkeypatch: pytest.MonkeyPatch, verb: str):
    with shop.session() as session:
        before = shop.content()
        action = done(session, *STATEMENTS)
        after = shop.content()
        if verb == "redo":
            session.undo(action)

        def at_once_broken(*_: Any, **__: Any) -> None:
            raise InDoubt("the connection broke")

        def then_broken(*arguments: Any, **options: Any) -> None:
            written(*arguments, **options)
            at_once_broken()

        written = ImagesMode._write
        with monkeypatch.context() as broken:
            broken.setattr(ImagesMode, "_write", then_broken if verb == "undo" else at_once_broken)
            with pytest.raises(InputError, match="the connection broke"):
                getattr(session, verb)(action)
        assert shop.content() == before
        session.resolve(action, S.UNDONE, "looked")
        with monkeypatch.context() as broken:
            broken.setattr(ImagesMode, "_write", then_broken)
            with pytest.raises(InputError, match="the connection broke"):
                session.redo(action)
        session.resolve(action, S.REDONE, "looked")
        assert shop.content() == after
        session.undo(action)
        assert shop.content() == before


DEADLINE_S = 60.0


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@in_mariadb_too
def test_it_is_seen_by_others_when_it_is_committed(shop: Shop, opened: Session):
    before = shop.content()
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
    assert shop.content() == before
    assert opened.commit(action).state is S.COMMITTED
    assert float(shop.others("SELECT price FROM item WHERE id = 1")[0][0]) == 1


DEFINITIONS = {
    "a table altered": ["ALTER TABLE item ADD COLUMN more TEXT DEFAULT 'x'", "UPDATE item SET more = 'y' WHERE id = 1"],
    "a column dropped": ["ALTER TABLE item DROP COLUMN photo"],
    "a table dropped": ["DROP TABLE log"],
    "a table renamed": ["ALTER TABLE log RENAME TO diary"],
    "an index": ["CREATE INDEX item_price ON item (price)"],
    "a view": ["CREATE VIEW cheap AS SELECT id FROM item WHERE price < 5"],
}
OF_POSTGRESQL = {
    "a view of its own": ["CREATE MATERIALIZED VIEW much AS SELECT sum(price) FROM item"],
    "a type": ["CREATE TYPE size AS ENUM ('s', 'm')", "CREATE TABLE shirt (size size)"],
    "a label": ["ALTER TYPE mood ADD VALUE 'bored'"],
    "truncate": ["TRUNCATE kind RESTART IDENTITY CASCADE"],
}


EACH = [
    *((engine, each) for engine in ("sqlite", "postgres") for each in DEFINITIONS),
    *(("postgres", each) for each in OF_POSTGRESQL),
]


@pytest.mark.parametrize(("engine", "case"), EACH)
def test_definitions_are_taken_back_exactly(request: pytest.FixtureRequest, engine: str, case: str):
    shop, statements = request.getfixturevalue(f"{engine}_shop"), {**DEFINITIONS, **OF_POSTGRESQL}[case]
    if shop.schema == "public":
        owned_by_the_role(shop)
    before = shop.content()
    with shop.session() as session:
        action = done(session, *statements, mode="transaction")
        session.undo(action)
        assert shop.content() == before
        second = done(session, *statements, mode="transaction")
        session.commit(second)
        assert shop.content() != before


def owned_by_the_role(shop: Shop) -> None:
    names = [name for (name,) in shop.others("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    changes = [f"ALTER TABLE {name} OWNER TO agent" for name in names]
    shop.others("; ".join([*changes, "ALTER VIEW dear OWNER TO agent", "ALTER TYPE mood OWNER TO agent"]))


def test_rows_count_where_something_is_defined_as_well(postgres_shop: Shop):
    owned_by_the_role(postgres_shop)
    with postgres_shop.session(max_rows=3) as session, pytest.raises(InputError, match="max_rows"):
        done(session, "ALTER TABLE log ADD COLUMN more text", "UPDATE item SET price = 1", mode="transaction")


@in_mariadb_too
def test_a_held_action_keeps_others_of_the_session_off_its_tables(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
    with pytest.raises(InputError, match=f"has the open transaction of action {action}; commit or undo that first"):
        done(opened, "UPDATE item SET price = 2 WHERE id = 2")
    opened.undo(action)
    done(opened, "UPDATE item SET price = 2 WHERE id = 2")


def test_after_its_time_it_is_rolled_back_and_recorded_as_undone(shop: Shop):
    before = shop.content()
    with shop.session(transaction_timeout_s=0.5) as session:
        sql = {
            "do": "sql",
            "database": "shop",
            "statements": ["UPDATE item SET price = 1 WHERE id = 1"],
            "mode": "transaction",
        }
        proposal = session.propose(sql)
        assert any("for 0.5 s at most" in line for line in proposal.plan.changes)
        session.run(proposal.action, proposal.plan.digest)
        until(lambda: not is_held(shop))
        shop.others("UPDATE item SET price = 3 WHERE id = 3")
        with pytest.raises(InputError, match="is undone, so it cannot become committed"):
            session.commit(proposal.action)
    assert {name: rows for name, rows in shop.content().items() if name not in ("item", "log")} == {
        name: rows for name, rows in before.items() if name not in ("item", "log")
    }


def is_held(shop: Shop) -> bool:
    """Whether others cannot write to the row."""
    try:
        if shop.schema == "main":
            shop.others("BEGIN IMMEDIATE")
        else:
            shop.others("SET lock_timeout = 10; SELECT id FROM item WHERE id = 1 FOR UPDATE")
    except (apsw.BusyError, psycopg.errors.LockNotAvailable):
        return True
    return False


@in_mariadb_too
def test_what_was_held_cannot_be_taken_back_after_its_commit_nor_done_again_after_its_undo(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
    opened.undo(action)
    with pytest.raises(InputError, match="propose it again"):
        opened.redo(action)


@in_mariadb_too
def test_it_ends_with_us_and_is_recorded_as_undone(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
    with shop.session() as session:
        assert session.recovered == [action]
        assert session.journal.standing(action).state is S.UNDONE
        assert shop.content() == before
        again = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
        session.commit(again)
        assert shop.content() != before


@pytest.mark.parametrize("by", ["the server", "the way"])
def test_a_connection_that_is_cut_rolls_it_back(postgres_shop: Shop, by: str):
    with postgres_shop.session() as session:
        action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
        if by == "the server":
            idle = "FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
            postgres_shop.others(f"SELECT pg_terminate_backend(pid) {idle}")
            until(lambda: not postgres_shop.others(f"SELECT pid {idle}"))
        else:
            (held,) = session.actions.manager_of_action(action)._databases.engine("shop").transactions._open.values()
            with socket.socket(fileno=os.dup(held.fileno())) as way:
                way.shutdown(socket.SHUT_RDWR)
        with pytest.raises(InputError, match="was rolled back before it was committed"):
            session.commit(action)
        assert session.journal.standing(action).state is not S.COMMITTED
        assert postgres_shop.others("SELECT price FROM item WHERE id = 1")[0][0] != 1


def proposed(database: str = "shop") -> dict[str, Any]:
    statements = ["UPDATE item SET price = 1 WHERE id = 1"]
    return {"do": "sql", "database": database, "statements": statements, "mode": "transaction"}


@in_mariadb_too
def test_it_is_refused_before_anything_runs_where_it_would_end_with_the_command(shop: Shop):
    before = shop.content()
    with session_on({"shop": shop.settings}, shop.state, lives_on=False) as session:
        with pytest.raises(InputError, match="would be rolled back when this command ends"):
            session.propose(proposed())
        assert session.journal.standings() == []
    assert shop.content() == before


CHANGES = {
    "an altered table": lambda shop: shop.others("ALTER TABLE item ADD COLUMN more TEXT"),
    "a foreign write to a locked row": lambda shop: shop.others("UPDATE item SET price = 77 WHERE id = 1"),
    "a missing file": lambda shop: Path(shop.settings.path).unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_recovery_settles_one_action_and_lets_every_other_command_go_on(
    sqlite_shop: Shop, tmp_path: Path, change: Callable[[Shop], Any]
):
    other = make_sqlite_shop(tmp_path / "other")
    databases = {"shop": sqlite_shop.settings, "other": other.settings}
    with session_on(databases, sqlite_shop.state) as session:
        held = session.propose(proposed())
        session.run(held.action, held.plan.digest)
    change(sqlite_shop)
    with session_on(databases, sqlite_shop.state) as session:
        assert session.journal.standing(held.action).state in (S.UNDONE, S.UNDO_IN_DOUBT)
        action = session.propose({**proposed("other"), "mode": "images"})
        session.run(action.action, action.plan.digest)
        session.undo(action.action)
        session.savepoint("later")
    with session_on(databases, sqlite_shop.state) as session:
        assert session.recovered == []
