"""Actions in the mode `transaction`: nothing is final, or seen by others, before it is committed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from autoclave.core import InputError
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.postgresql import Postgres
from tests.runtime.databases.shops import (
    Shop,
    done,
    in_mariadb_too,
    make_postgres_shop,
    make_sqlite_shop,
    session_on,
)

S = ActionState
DEADLINE_S = 20.0


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


@pytest.mark.parametrize("statements", DEFINITIONS.values(), ids=DEFINITIONS)
def test_definitions_are_taken_back_exactly(shop: Shop, statements: list[str]):
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


@pytest.mark.parametrize("statements", OF_POSTGRESQL.values(), ids=OF_POSTGRESQL)
def test_so_are_those_of_postgresql(postgres_shop: Shop, statements: list[str]):
    test_definitions_are_taken_back_exactly(postgres_shop, statements)


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
        assert session.difference(proposal.action)[-1].startswith("open until 20")
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
    with pytest.raises(InputError, match="propose it anew"):
        opened.redo(action)


def test_where_the_server_keeps_it_it_survives_us_and_the_server(postgres_shop: Shop):
    shop, before = postgres_shop, postgres_shop.content()
    with shop.session() as session:
        action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
        other = done(session, "UPDATE sum_of SET b = 3 WHERE a = 1", mode="transaction")
    shop.server.stop()
    shop.server.start()
    with shop.session() as session:
        assert session.recovered == []
        assert session.journal.standing(action).state is S.EXECUTED
        session.undo(other)
        assert shop.content() == before
        session.commit(action)
        assert shop.content() != before
    assert shop.held() == []


@in_mariadb_too
def test_elsewhere_it_ends_with_us_and_is_recorded_as_undone(shop: Shop, server: Postgres):
    if shop.schema == "public":
        server.settle(max_prepared_transactions=0)
    try:
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
    finally:
        if shop.schema == "public":
            server.settle(max_prepared_transactions=8)


def test_a_connection_that_is_cut_rolls_it_back(server: Postgres, tmp_path: Path):
    server.settle(max_prepared_transactions=0)
    try:
        shop = make_postgres_shop(server, tmp_path)
        with shop.session() as session:
            action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
            idle = "FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
            shop.others(f"SELECT pg_terminate_backend(pid) {idle}")
            until(lambda: not shop.others(f"SELECT pid {idle}"))
            with pytest.raises(InputError, match="is undone, so it cannot become committed"):
                session.commit(action)
    finally:
        server.settle(max_prepared_transactions=8)


def test_a_connection_that_is_cut_by_its_commit_is_looked_into(server: Postgres, tmp_path: Path):
    server.settle(max_prepared_transactions=0)
    try:
        shop = make_postgres_shop(server, tmp_path)
        with shop.session() as session:
            action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
            (held,) = session.actions.manager_of_action(action)._databases.engine("shop").transactions._open.values()
            with socket.socket(fileno=os.dup(held.fileno())) as way:
                way.shutdown(socket.SHUT_RDWR)
            with pytest.raises(InputError, match=r"was rolled back before it was committed|is undone"):
                session.commit(action)
            assert shop.others("SELECT price FROM item WHERE id = 1")[0][0] != 1
    finally:
        server.settle(max_prepared_transactions=8)


def test_a_commit_that_nobody_recorded_is_found(postgres_shop: Shop):
    with postgres_shop.session() as session:
        action = done(session, "UPDATE item SET price = 1 WHERE id = 1", mode="transaction")
        postgres_shop.others(f"COMMIT PREPARED 'autoclave-{action}'")
        with pytest.raises(InputError, match="is committed, and a transaction leaves nothing"):
            session.undo(action)
        assert session.commit(action).state is S.COMMITTED


def proposed(database: str = "shop") -> dict[str, Any]:
    statements = ["UPDATE item SET price = 1 WHERE id = 1"]
    return {"do": "sql", "database": database, "statements": statements, "mode": "transaction"}


@in_mariadb_too
def test_it_is_refused_before_anything_runs_where_it_would_end_with_the_command(shop: Shop, server: Postgres):
    if shop.schema == "public":
        server.settle(max_prepared_transactions=0)
    try:
        before = shop.content()
        with short_lived(shop) as session:
            with pytest.raises(InputError, match="would be rolled back when this command ends"):
                session.propose(proposed())
            assert session.journal.standings() == []
        assert shop.content() == before
    finally:
        if shop.schema == "public":
            server.settle(max_prepared_transactions=8)


def test_where_the_server_keeps_it_a_command_may_leave_it_open(postgres_shop: Shop):
    with short_lived(postgres_shop) as session:
        proposal = session.propose(proposed())
        session.run(proposal.action, proposal.plan.digest)
    with short_lived(postgres_shop) as session:
        session.commit(proposal.action)
    assert postgres_shop.others("SELECT price FROM item WHERE id = 1")[0][0] == 1


def short_lived(shop: Shop) -> Session:
    """A session of a process that ends after each action."""
    return session_on({"shop": shop.settings}, shop.state, lives_on=False)


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
