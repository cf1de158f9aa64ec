"""The interface of database engines, which one manager serves; and how engines are found.

An engine knows one database. It runs statements and says what they did to which rows, and it writes rows back. It keeps
nothing beyond its process: what has to survive it hands to the caller, before it commits.
"""

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.install import needing
from autoclave.runtime.databases.effects import Effect, Image, Place, row_name
from autoclave.runtime.databases.operations import Operation, Sql
from autoclave.runtime.databases.settings import DatabaseConnection, Mode

_AGAIN_S = 2.0
TOO_MANY = "changes more than {} rows (max_rows); do it in parts, or have the limit raised"

Json = Mapping[str, Any]
Keep = Callable[[Effect, Json], None]
"""Called before a commit, with what will have been done and a mark by which one can tell later whether it was. What it
is given is durable when it returns; what it raises, rolls back."""
FoundRows = dict[Place, Image | None]
"""Rows as they are now, by table and key; None: there is none. Rows without a key have the key ""."""


class RowConflict(InputError):
    """Rows are not as they are to be before something is written over them; nothing was written."""

    @staticmethod
    def over(database: str, places: Iterable[tuple[str, str]]) -> "RowConflict":
        """`places`: tables and keys, in the database of this name."""
        names = [row_name(database, table, key) for table, key in places]
        return RowConflict(f"somebody else has changed {', '.join(names[:20])}")


class Rejected(InputError):
    """The database refuses rows that are written: something of others depends on how it is. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The subjects of statements, before they are run.

    Attributes:
        writes: tables (`SCHEMA/NAME`) and the verbs that the statements use on them; cascades and triggers not.
        reads: what they depend on: `SCHEMA/NAME`, or `SCHEMA/NAME/KEY` where they name a row by its key.
        defines: objects (`SCHEMA/NAME`) that they create, alter or drop.
    """

    writes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    reads: frozenset[str] = frozenset()
    defines: frozenset[str] = frozenset()


class Engine(ABC):
    """One database. Not for several threads.

    Errors of a database carry values of rows: an engine raises `InputError` and `HostError` with messages without any,
    which name kind, table, column and constraint. Where the connection is lost while it commits, it raises `InDoubt`.
    """

    operation: type[Operation] = Sql
    """The operation that can be proposed for it."""
    has_marks = False
    """True if it tells by more than the rows whether a transaction was committed."""
    transactions: "OpenTransactions"
    """Those that were left open; an engine of another operation than `Sql` has none."""

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        self.name, self.settings, self.where = name, settings, f"database {name}"

    def lease(self, tables: Collection[str]) -> None:  # noqa: B027 - no table is locked by default
        """Keep other sessions of ours from tables until the engine is closed; raise InputError if one has them."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections and leases. Transactions that cannot survive that are rolled back."""

    def told(self) -> Iterator[str]:
        """Lines about the tables that may be used, with their columns and keys. No names of keys: these may be data."""
        return iter(())

    @abstractmethod
    def read(self, operation: Any, mode: Mode) -> Reading:
        """Return what statements are about, running none; raise InputError if one cannot be undone in this mode."""

    @abstractmethod
    def rehearse(self, operation: Any, mode: Mode) -> Effect:
        """Return what statements would do: they are run, and rolled back.

        Raises InputError where they fail, or do more than they may, and HostError where the database is busy, or away.
        """

    @abstractmethod
    def perform(self, operation: Any, keep: Keep) -> None:
        """Run statements, call `keep`, and commit.

        Raises:
            InputError, HostError: as `rehearse`; nothing was done.
            InDoubt: the connection was lost while it was committed.
        """

    @abstractmethod
    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """Return whether what `Keep` got with this mark was committed; raise InDoubt if that cannot be told now."""

    def require_few(self, effect: Effect) -> Effect:
        if sum(rows for _, _, rows in effect.row_counts()) > self.settings.max_rows:
            raise InputError(f"{self.where}: {TOO_MANY.format(self.settings.max_rows)}")
        return effect

    @abstractmethod
    def conflicting(self, effect: Effect) -> FoundRows:
        """Rows that an effect would take away or bring, and that are not as they were when it was recorded."""

    @abstractmethod
    def write(self, effect: Effect, keep: Keep) -> None:
        """Take the rows away that an effect removes, and bring those that it adds; all or nothing.

        Raises:
            RowConflict: something is not as it is to be before.
            Rejected: the database refuses it.
            HostError: the database is busy, or away.
            InDoubt: the connection was lost while it was committed.
        """


class SqlEngine(Engine):
    """A database that runs statements in transactions, some of which may be left open."""

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Raise errors of the driver as ours."""

    @abstractmethod
    def connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def commit(self, connection: Any) -> None:
        """Commit. Raises InDoubt where the connection was lost meanwhile, and is closed."""

    @abstractmethod
    def running(self, operation: Sql, mode: Mode) -> AbstractContextManager[tuple[Any, Effect]]:
        """Run statements in a transaction, which is rolled back unless the block commits it: connection and effect."""

    @abstractmethod
    def run_open(self, connection: Any, operation: Sql) -> tuple[Effect, Json]:
        """Run statements in a transaction of a new connection, which stays open: what they did, and a mark."""

    def mark(self, connection: Any) -> Json:
        """By what one can tell later, beside the rows, whether the transaction that is open was committed."""
        return {}

    def rehearse(self, operation: Sql, mode: Mode) -> Effect:
        with self.running(operation, mode) as (_, effect):
            return effect

    def perform(self, operation: Sql, keep: Keep) -> None:
        with self.running(operation, Mode.IMAGES) as (connection, effect):
            keep(effect, self.mark(connection))
            self.commit(connection)


def open_engine(name: str, connection: DatabaseConnection, password: str) -> Engine:
    """Open a database by its name, its settings and its password (empty: none).

    Raises InputError where the settings do not fit the engine, and HostError where the database does not answer, or
    something is not installed.
    """
    with needing(f"database {name}", "databases"):
        if connection.engine != "redis" and find_spec("sqlglot") is None:  # it takes long to load
            raise ImportError(name="sqlglot")
        module = import_module(f"autoclave.runtime.databases.{connection.engine}.engine")
    return module.open_database(name, connection, password)


class OpenTransactions:
    """Transactions of one database that stay open until somebody decides, by the names of their actions.

    Each has a connection of its own. A clock rolls back what nobody has decided about in time, and what is open ends
    with this process.
    """

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
        self._open: dict[str, Any] = {}
        self._ends: dict[str, bool] = {}
        """True if those that we have ended were committed."""
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def open(self, action: str, operation: Any, keep: Callable[[Effect, Mapping[str, Any]], None]) -> None:
        """Run statements, call `keep`, and leave the transaction open under this name. Raises as `Engine.rehearse`."""
        timeout_s = self._engine.settings.transaction_timeout_s
        with contextlib.ExitStack() as unless_open, self._engine.translated():
            connection = self._engine.connect()
            unless_open.callback(_close, connection)
            effect, mark = self._engine.run_open(connection, operation)
            keep(effect, {**mark, "until": time.time() + timeout_s})
            unless_open.pop_all()
        self._open[action] = connection
        self._expires(action, timeout_s)

    def is_open(self, action: str) -> bool:
        with self._lock:
            return action in self._open

    def was_committed(self, action: str) -> bool | None:
        """Return whether one that is not open any more was committed; None: the rows tell, if anything does."""
        return self._ends.get(action)

    def end(self, action: str, *, commit: bool) -> None:
        """Commit an open transaction, or roll it back. Nothing if there is none.

        Raises HostError where the database is busy or away, and InDoubt where the connection was lost while it was
        committed.
        """
        with self._engine.translated(), self._lock:
            if (connection := self._open.get(action)) is None:
                return
            is_over = True
            try:
                if commit:
                    self._engine.commit(connection)
                self._ends[action] = commit
            except HostError:  # the database is busy
                is_over = False
                raise
            finally:
                if is_over:
                    del self._open[action]
                    _close(connection)

    def _expires(self, action: str, seconds: float) -> None:
        def expire() -> None:
            try:
                self.end(action, commit=False)
            except AutoclaveError:
                self._expires(action, _AGAIN_S)

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        if not self._is_closed:
            timer.start()
            self._timers.append(timer)

    def close(self) -> None:
        """Stop the clocks, and roll back what is open here."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        for action in list(self._open):
            self.end(action, commit=False)


def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # it may be lost already
        connection.close()


class Databases:
    """Engines by the names that operations use, opened when needed. `key_of` gives the password that a secret holds."""

    def __init__(self, connections: Mapping[str, DatabaseConnection], key_of: Callable[[str], str]) -> None:
        self._connections, self._key_of = connections, key_of
        self._engines: dict[str, Engine] = {}

    def __iter__(self):
        return iter(self._connections)

    def __contains__(self, name: object) -> bool:
        return name in self._connections

    def settings(self, name: str) -> DatabaseConnection:
        """Return what a person says of a database. Raises InputError where there is no such database."""
        if name not in self._connections:
            known = ", ".join(self._connections) or "none"
            raise InputError(f"database {name!r}: there is no such database; there are {known}")
        return self._connections[name]

    def engine(self, name: str) -> Engine:
        """The engine of a database. Raises as `settings` and `open_engine`."""
        settings = self.settings(name)
        if name not in self._engines:
            password = self._key_of(settings.password_secret) if settings.password_secret else ""
            self._engines[name] = open_engine(name, settings, password)
        return self._engines[name]

    def close(self) -> None:
        """Let go of all. Transactions that cannot survive that are rolled back."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
