"""A process that dies at any step, and connections that do: what was begun is done or not, and recorded as it is."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.mariadb.connection import Server as MariadbServer
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.open_transactions import PreparedTransactions
from autoclave.runtime.databases.sqlite.engine import SqliteDatabase
from autoclave.runtime.journal import Journal, Standing
from autoclave.runtime.session import Session
from autoclave.runtime.states import STANDING, ActionState
from tests.postgresql import Postgres
from tests.runtime.databases.shops import Shop, done, in_mariadb_too, in_mariadb_too_if_long, of_servers
from tests.runtime.deaths import dies_within

S = ActionState
NOWHERE = Standing("none", S.PROPOSED, 0, 0.0, {}, {}, None)
STATEMENTS = ("DELETE FROM kind WHERE name = 'book'", "INSERT INTO note VALUES ('new', 1)")


def dies_at(deadly: int, shop: Shop, work: Callable[[Session], object]) -> bool:
    """Whether a process that is killed at its so-manieth event came so far. Events are writes and commits, before and
    after each.
    """

    def acting(dying: Callable[..., Any]) -> None:
        patched = [(Journal, "_add"), (Journal, "seal"), (KeptRows, "_write"), (PreparedTransactions, "end")]
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


def test_killed_at_every_event_a_held_action_is_held_or_rolled_back(postgres_shop: Shop):
    shop, before = postgres_shop, postgres_shop.content()
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, shop, lambda session: done(session, *STATEMENTS, mode="transaction"))
        with shop.session() as session:
            last = (session.journal.standings() or [NOWHERE])[-1]
            assert last.state in (S.PROPOSED, S.APPROVED, S.EXECUTED, S.FAILED)
            if last.state is S.EXECUTED:
                assert shop.held() == [f"autoclave-{last.action}"]
                session.undo(last.action)
            assert shop.held() == []
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
            if last.state is S.EXECUTED:  # the commit was begun, or the server keeps it
                session.commit(last.action)
            is_committed = last is not NOWHERE and session.journal.standing(last.action).state is S.COMMITTED
            assert shop.held() == []
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
                    assert select.select([connection.fileno()], [], [], 20.0)[0]  # it has answered; nobody reads that
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
def test_what_nobody_foresaw_leaves_an_action_in_doubt_and_others_go_on(shop: Shop, verb: str, doubt: ActionState):
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
