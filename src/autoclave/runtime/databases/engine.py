"""What an engine of databases has to offer, so that one manager serves them all; and how engines are found.

An engine knows one database. It runs statements and says what they did to which rows, and it writes rows back. It keeps
nothing beyond its process: what has to survive it hands to the caller, before it commits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image, Place, row_name
from autoclave.runtime.databases.open_transactions import OpenTransactions
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import DatabaseConnection, Mode

REDIS = "redis"
"""No engine of this protocol, since it has no rows: it has a manager of its own."""
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
    def over(database: str, places: Iterable[tuple[str, str]]) -> RowConflict:
        """`places`: tables and keys, in the database of this name."""
        names = [row_name(database, table, key) for table, key in places]
        return RowConflict(f"somebody else has changed {', '.join(names[:20])}")


class Rejected(InputError):
    """The database refuses rows that are written: something of others depends on how it is. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What statements are about, before they are run.

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

    transactions: OpenTransactions
    """Those that were left open."""

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        self.name, self.settings, self.where = name, settings, f"database {name}"

    # --- Connections ------------------------------------------------------------------------------------------------

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Raise errors of the driver as ours."""

    @abstractmethod
    def connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def commit(self, connection: Any) -> None:
        """Commit.

        Raises:
            InDoubt: the connection was lost meanwhile, and is closed.
        """

    @abstractmethod
    def lease(self, tables: Collection[str]) -> None:
        """Keep other sessions of ours from tables until the engine is closed.

        Raises:
            InputError: another one has them.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections and leases. Transactions that cannot survive that are rolled back."""

    # --- Looking ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def told(self) -> Iterator[str]:
        """Lines about the tables that may be used, with their columns and keys."""

    @abstractmethod
    def read(self, operation: Sql, mode: Mode) -> Reading:
        """What statements are about. Nothing is run.

        Raises:
            InputError: one of them is none, is refused, or cannot be taken back in this mode.
        """

    # --- Doing ------------------------------------------------------------------------------------------------------

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
        """Return what statements would do: they are run, and rolled back.

        Raises:
            InputError: they fail, or do more than they may.
            HostError: the database is busy, or away.
        """
        with self.running(operation, mode) as (_, effect):
            return effect

    def perform(self, operation: Sql, keep: Keep) -> None:
        """Run statements, call `keep`, and commit.

        Raises:
            InputError, HostError: as `rehearse`; nothing was done.
            InDoubt: the connection was lost while it was committed.
        """
        with self.running(operation, Mode.IMAGES) as (connection, effect):
            keep(effect, self.mark(connection))
            self.commit(connection)

    @abstractmethod
    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """Whether what was handed to `Keep` with this mark was committed.

        Raises:
            InDoubt: nobody can tell, at least not now.
        """

    def require_few(self, effect: Effect) -> Effect:
        """Check that an effect is within the limits of the settings."""
        if sum(rows for _, _, rows in effect.row_counts()) > self.settings.max_rows:
            raise InputError(f"{self.where}: {TOO_MANY.format(self.settings.max_rows)}")
        return effect

    # --- Taking back ------------------------------------------------------------------------------------------------

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


def open_engine(name: str, connection: DatabaseConnection, password: str) -> Engine:
    """Open a database by its name, its settings and its password (empty: none).

    Raises:
        InputError: the settings do not fit the engine.
        HostError: the database does not answer, or something is not installed.
    """
    module = import_module(f"autoclave.runtime.databases.{connection.engine}.engine")
    return module.open_database(name, connection, password)


def require_connectable(name: str, connection: DatabaseConnection) -> None:
    """Open a file, to see that it is a database. A server may be away, and is not asked.

    Raises:
        InputError, HostError: as `open_engine`.
    """
    if connection.path and connection.engine != REDIS:
        open_engine(name, connection, "").close()
