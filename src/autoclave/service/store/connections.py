"""Connections to PostgreSQL that are used again. A database that is away is told at once, and without saying where."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from autoclave.core import InputError
from autoclave.service.store.interface import StoreAway

AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
"""What libpq's errors are when the connection breaks, the server ends, is full, or has become a standby."""
_DEFAULTS: dict[str, Any] = {
    "application_name": "autoclave serve",
    "connect_timeout": 5,
    "keepalives_idle": 10,  # a machine that lost its power is noticed within half a minute
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET statement_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = '10s'",  # a node that was stopped holds no lock for long
)
_REASONS = (
    ("password", "it does not accept the user or the password"),
    ("authentication", "it does not accept the user or the password"),
    ("does not exist", "there is no such user or database"),
    ("refused", "nobody listens there"),
    ("no such file", "nobody listens there"),
    ("timeout", "no answer in time"),
    ("name or service", "the name of its host is not known"),
    ("name resolution", "the name of its host is not known"),
    ("ssl", "TLS failed"),
    ("certificate", "TLS failed"),
    ("starting up", "it is starting"),
    ("shutting down", "it is shutting down"),
    ("too many", "it has too many connections"),
    ("remaining connection slots", "it has too many connections"),
)


class Connections:
    """At most `limit` at a time; whoever needs one more waits for it."""

    def __init__(self, url: str, limit: int) -> None:
        """Connect to nothing yet.

        Raises:
            InputError: the address cannot be read.
        """
        try:
            self._address = make_conninfo("", **{**_DEFAULTS, **conninfo_to_dict(url)})
        except psycopg.ProgrammingError:  # its text holds the address
            raise InputError("store: the address cannot be read; give postgresql://USER@HOST:PORT/DATABASE") from None
        self._places = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._free: list[psycopg.Connection[Any]] = []
        self._is_closed = False

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection, the caller's own.

        Raises:
            StoreAway: the database does not answer, or does not let us in.
        """
        try:
            connection = psycopg.connect(self._address, autocommit=True)
        except psycopg.Error as error:
            raise StoreAway(reason_of(error)) from None
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
        except psycopg.Error as error:
            connection.close()
            raise StoreAway(reason_of(error)) from None
        return connection

    @contextlib.contextmanager
    def lent(self) -> Generator[psycopg.Connection[Any]]:
        """A connection for a while. One that broke is not used again.

        Raises:
            StoreAway: there is none.
        """
        with self._places:
            connection = self._taken() or self.connect()
            try:
                yield connection
            finally:
                self._take_back(connection)

    def close(self) -> None:
        """Close those that nobody uses now, and the others when they come back."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _taken(self) -> psycopg.Connection[Any] | None:
        while True:
            with self._lock:
                if self._is_closed:
                    raise StoreAway("the store is closed")
                if not self._free:
                    return None
                connection = self._free.pop()
            if not _has_ended(connection):
                return connection
            connection.close()

    def _take_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if not self._is_closed and connection.info.transaction_status == TransactionStatus.IDLE:
                self._free.append(connection)
                return
        connection.close()


def _has_ended(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server closed it while nobody used it: a connection that is idle has nothing to read but its end."""
    if connection.closed:
        return True
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return bool(poller.poll(0))


def reason_of(error: BaseException) -> str:
    """Why the database is away, in words without a name, a path or an address."""
    text = str(error).lower()
    return next((reason for word, reason in _REASONS if word in text), "the connection failed")
