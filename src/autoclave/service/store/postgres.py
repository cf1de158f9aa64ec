"""Store in a PostgreSQL database, for several nodes.

Advisory locks serialize creation of the tables and acceptance of jobs, so that bounds and turns hold over all nodes.
Jobs are claimed without waiting (`SKIP LOCKED`). A commit sends its events by NOTIFY to all nodes, this one included.

While the database is unavailable, all methods raise `StoreUnavailable`: once there is a subscription, which asks the
database every `_ASK_EVERY_S` seconds, also where it stalls, and at once until it responds again.
"""

import contextlib
import logging
import os
import secrets
import select
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from autoclave.core import HostError, InputError
from autoclave.service.store.records import Event, EventKind, StoreUnavailable
from autoclave.service.store.schema import POSTGRES, VERSION, refusal, statements
from autoclave.service.store.sql import Store

_SCHEMA_LOCK, _QUEUE_LOCK = 7_018_312_001, 7_018_312_002
"""Keys of advisory locks."""
_CONNECTIONS = 10


class PostgresStore(Store):
    """Store in a database."""

    NOW = "extract(epoch FROM clock_timestamp())::float8"
    LOCKED = "FOR UPDATE"
    FREE = "FOR UPDATE SKIP LOCKED"
    COLUMNS = (
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(quote_ident(current_schema()) || '.' || ?::text)"
    )

    def __init__(self, url: str) -> None:
        """Connect, and create the tables of an empty database. `url` is an address for libpq: postgresql://...

        Raises InputError: the address is not valid, the database holds something else, or has another version of the
        tables. HostError: the database does not respond, or refuses the connection.
        """
        self.node = secrets.token_urlsafe(12)
        self._connections = Connections(url, _CONNECTIONS)
        self._current = threading.local()
        self._subscription: Subscription | None = None
        with contextlib.ExitStack() as undone:
            undone.callback(self._connections.close)
            try:
                self._prepare()
            except StoreUnavailable as error:
                raise HostError(
                    f"store: the PostgreSQL database cannot be used: {error}. Fix: start it, or use another address"
                ) from None
            except psycopg.Error as error:
                raise InputError(
                    f"store: the PostgreSQL database cannot be used ({type(error).__name__}). Fix: use an empty "
                    "one, or one that autoclave created, in which this user may create tables"
                ) from None
            undone.pop_all()

    def _prepare(self) -> None:
        with self._changing():  # another node may create the tables too
            self._run("SELECT pg_advisory_xact_lock(?)", _SCHEMA_LOCK)
            self._run("CREATE TABLE IF NOT EXISTS autoclave_schema (version BIGINT NOT NULL)")
            version = self._value("SELECT coalesce(max(version), 0) FROM autoclave_schema")
            if version not in (0, VERSION):
                raise InputError(f"store: the database {refusal(version)}")
            if version == 0:
                for statement in statements(POSTGRES):
                    self._run(statement)
                self._run("INSERT INTO autoclave_schema (version) VALUES (?)", VERSION)
            self._add_to_tables(POSTGRES)

    def join(self) -> None:
        pass  # `adopt` finds dead nodes

    def subscribe(self, on_event: Callable[[Event], None]) -> None:
        if self._subscription is not None:
            raise RuntimeError("the store has a subscriber already")
        self._subscription = Subscription(self._connections, on_event)

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._connections.close()

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
        """Lend a connection. Errors do not show the address of the database."""
        try:
            with self._connections.lent() as connection:
                yield connection
        except AWAY as error:
            raise StoreUnavailable(reason_of(error)) from None


def _marked(statement: str) -> LiteralString:
    return cast(LiteralString, statement.replace("?", "%s"))


AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
"""Errors of a broken connection, and of a server that is down, full or a standby."""
_DEFAULTS: dict[str, Any] = {
    "application_name": "autoclave serve",
    "connect_timeout": 5,
    "keepalives_idle": 10,  # a machine without power is detected within 30 s
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET statement_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = '10s'",  # a suspended node must not hold locks
)
_REASONS = (
    ("password", "it does not accept the user or the password"),
    ("authentication", "it does not accept the user or the password"),
    ("does not exist", "the user or the database does not exist"),
    ("refused", "the connection was refused"),
    ("no such file", "the connection was refused"),
    ("timeout", "no response in time"),
    ("name or service", "its host name is unknown"),
    ("name resolution", "its host name is unknown"),
    ("ssl", "TLS failed"),
    ("certificate", "TLS failed"),
    ("starting up", "it is starting"),
    ("shutting down", "it is shutting down"),
    ("too many", "it has too many connections"),
    ("remaining connection slots", "it has too many connections"),
)


class Connections:
    """Pool of at most `limit` connections; callers wait for a free one."""

    def __init__(self, url: str, limit: int) -> None:
        """Prepare the pool; no connection is made. Raises `InputError` if the address is not valid."""
        try:
            self._address = make_conninfo("", **{**_DEFAULTS, **conninfo_to_dict(url)})
        except psycopg.ProgrammingError:  # its message has the address
            raise InputError("store: the address is not valid. Fix: use postgresql://USER@HOST:PORT/DATABASE") from None
        self._places = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._free: list[psycopg.Connection[Any]] = []
        self._lent: set[psycopg.Connection[Any]] = set()
        self._is_closed = False
        self.is_away = False

    def connect(self) -> psycopg.Connection[Any]:
        """Return a new connection, which the caller closes, or raise `StoreUnavailable`."""
        with contextlib.ExitStack() as undone:
            try:
                connection = undone.enter_context(contextlib.closing(psycopg.connect(self._address, autocommit=True)))
                for setting in _SETTINGS:
                    connection.execute(setting)
            except psycopg.Error as error:
                raise StoreUnavailable(reason_of(error)) from None
            undone.pop_all()
        return connection

    @contextlib.contextmanager
    def lent(self) -> Generator[psycopg.Connection[Any]]:
        """Lend a connection, or raise `StoreUnavailable`; a broken one leaves the pool."""
        with self._places:
            connection = self._taken() or self.connect()
            with self._lock:
                self._lent.add(connection)
            try:
                yield connection
            finally:
                self._take_back(connection)

    def close(self) -> None:
        """Close idle connections now, and lent ones when they return."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def break_off(self, *others: psycopg.Connection[Any]) -> None:
        """Fail all statements now, and new ones until `is_away` is False: a stalled database never responds."""
        with self._lock:
            self.is_away = True
            for connection in (*self._lent, *self._free, *others):
                with (
                    contextlib.suppress(OSError, psycopg.Error),  # it is closed
                    socket.socket(fileno=os.dup(connection.fileno())) as end,
                ):
                    end.shutdown(socket.SHUT_RDWR)

    def _taken(self) -> psycopg.Connection[Any] | None:
        while True:
            with self._lock:
                if self._is_closed:
                    raise StoreUnavailable("the store is closed")
                if self.is_away:
                    raise StoreUnavailable
                if not self._free:
                    return None
                connection = self._free.pop()
            if not _has_ended(connection):
                return connection
            connection.close()

    def _take_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            self._lent.discard(connection)
            if not self._is_closed and connection.info.transaction_status == TransactionStatus.IDLE:
                self._free.append(connection)
                return
        connection.close()


def _has_ended(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the server closed an idle connection, which makes it readable."""
    if connection.closed:
        return True
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return bool(poller.poll(0))


def reason_of(error: BaseException) -> str:
    """Describe an error without a name, a path or an address."""
    text = str(error).lower()
    return next((reason for word, reason in _REASONS if word in text), "the connection failed")


CHANNEL = "autoclave"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_ASK_EVERY_S, _STALLED_S = 2.0, 3.0
_log = logging.getLogger(__name__)


def written(event: Event) -> str:
    return f"{event.kind} {event.batch}"


def read(payload: str) -> Event:
    """Parse a payload; a kind of a later version becomes UNKNOWN."""
    word, _, batch = payload.partition(" ")
    return Event(EventKind(word), batch) if word in list(EventKind) else Event(EventKind.UNKNOWN)


class Subscription:
    """Calls `on_event` for events of all nodes, and with UNKNOWN after each new connection, when events may be lost.
    Breaks off all connections when the database does not respond.
    """

    def __init__(self, connections: Connections, on_event: Callable[[Event], None]) -> None:
        self._connections = connections
        self._on_event = on_event
        self._is_closed = threading.Event()
        self._waker = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="store-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        os.eventfd_write(self._waker, 1)
        self._thread.join()
        os.close(self._waker)

    def _work(self) -> None:
        pause_s = 0.0
        while not self._is_closed.wait(pause_s):
            try:
                with contextlib.closing(self._connections.connect()) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._connections.is_away = False
                    if pause_s:
                        _log.warning("the store responds again")
                    pause_s = 0.0
                    self._on_event(Event(EventKind.UNKNOWN))
                    self._listen(connection)
            except (StoreUnavailable, psycopg.Error):
                self._connections.break_off()
                if not pause_s:
                    _log.warning("the store does not respond; retrying")
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        poller = select.poll()
        for descriptor in (connection.fileno(), self._waker):
            poller.register(descriptor, select.POLLIN)
        while not self._is_closed.is_set():
            for notification in connection.notifies(timeout=0):
                self._on_event(read(notification.payload))
            if not poller.poll(_ASK_EVERY_S * 1000):
                late = threading.Timer(_STALLED_S, self._connections.break_off, [connection])
                late.start()
                try:
                    connection.execute("SELECT 1")
                finally:
                    late.cancel()
