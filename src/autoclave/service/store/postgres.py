"""A store in a PostgreSQL database, for several nodes at a time.

Nodes that start at once make the schema one after the other (advisory lock), and accept jobs one after the other, so
that bounds and turns hold over all of them. Jobs are claimed without waiting (`SKIP LOCKED`). What happens is told with
NOTIFY when it is committed, to all nodes alike: this one, too, hears of its own deeds from the database.

While the database is away everything raises `StoreAway`, at once where the connection is refused.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, LiteralString, cast

import psycopg

from autoclave.core import HostError, InputError
from autoclave.service.store.connections import AWAY, Connections, reason_of
from autoclave.service.store.interface import Event, StoreAway
from autoclave.service.store.listening import CHANNEL, Listener, written
from autoclave.service.store.migrations import MIGRATIONS, POSTGRES, steps
from autoclave.service.store.sql import SqlStore

_SCHEMA_LOCK, _QUEUE_LOCK = 7_018_312_001, 7_018_312_002
"""Names of advisory locks: any numbers that nobody else in the database uses."""
_CONNECTIONS = 10


class PostgresStore(SqlStore):
    """A `Store` in a database."""

    NOW = "extract(epoch FROM clock_timestamp())::float8"
    LOCKED = "FOR UPDATE"
    FREE = "FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str) -> None:
        """Connect, and bring the schema up to date. `url` is what libpq understands: postgresql://...

        Raises:
            InputError: the address cannot be read, the database holds something else, or is of a later version.
            HostError: the database does not answer, or does not let us in.
        """
        self.node = secrets.token_urlsafe(12)
        self._connections = Connections(url, _CONNECTIONS)
        self._current = threading.local()
        self._listener: Listener | None = None
        with contextlib.ExitStack() as undone:
            undone.callback(self._connections.close)
            try:
                self._prepare()
            except StoreAway as away:
                raise HostError(
                    f"store: the PostgreSQL database cannot be used: {away}. Fix: start it, or give another address"
                ) from None
            except psycopg.Error as error:
                raise InputError(
                    f"store: the PostgreSQL database cannot be used ({type(error).__name__}); give an empty one, or "
                    "one that autoclave made, in which this user may make tables"
                ) from None
            undone.pop_all()

    def _prepare(self) -> None:
        with self._changing():  # another node may be doing the same
            self._run("SELECT pg_advisory_xact_lock(?)", _SCHEMA_LOCK)
            self._run("CREATE TABLE IF NOT EXISTS autoclave_schema (version BIGINT NOT NULL)")
            version = self._value("SELECT coalesce(max(version), 0) FROM autoclave_schema")
            if version > len(MIGRATIONS):
                raise InputError(
                    f"store: the database has version {version} of the schema, and this program knows "
                    f"{len(MIGRATIONS)}; use the newer program, or give another database"
                )
            for number, statements in steps(POSTGRES, version):
                for statement in statements:
                    self._run(statement)
                self._run("INSERT INTO autoclave_schema (version) VALUES (?)", number)

    def join(self) -> None:
        pass  # others may be at work; `adopt` finds those who are not any more

    def listen(self, hear: Callable[[Event], None]) -> None:
        if self._listener is not None:
            raise RuntimeError("somebody listens already")
        self._listener = Listener(self._connections.connect, hear)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._connections.close()

    # --- Statements ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Generator[list[Event]]:
        events: list[Event] = []
        with self._lent() as connection, connection.transaction():
            self._current.connection = connection
            try:
                yield events
                for event in dict.fromkeys(events):
                    self._run("SELECT pg_notify(?, ?)", CHANNEL, written(event))
            finally:
                self._current.connection = None

    def _lock_queue(self) -> None:
        self._run("SELECT pg_advisory_xact_lock(?)", _QUEUE_LOCK)

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        if (connection := getattr(self._current, "connection", None)) is not None:
            return connection.execute(_marked(statement), values).fetchall()
        with self._lent() as connection:
            return connection.execute(_marked(statement), values).fetchall()

    def _run(self, statement: str, *values: Any) -> int:
        return self._current.connection.execute(_marked(statement), values or None).rowcount

    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        if rows := list(rows):
            with self._current.connection.cursor() as cursor:
                cursor.executemany(_marked(statement), rows)

    @contextlib.contextmanager
    def _lent(self) -> Generator[psycopg.Connection[Any]]:
        """A connection. What goes wrong on the way to the database says nothing of where that is."""
        try:
            with self._connections.lent() as connection:
                yield connection
        except AWAY as error:
            raise StoreAway(reason_of(error)) from None


def _marked(statement: str) -> LiteralString:
    return cast(LiteralString, statement.replace("?", "%s"))
