"""What an engine of databases has to offer, so that one manager serves them all; and how engines are found.

An engine knows one database. It runs statements and says what they did to which rows, and it writes rows back. It keeps
nothing beyond its process: what has to survive it hands to the caller, before it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image, as_name
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode

REDIS = "redis"
"""No engine of this protocol, since it has no rows: it has a manager of its own."""

Json = Mapping[str, Any]
Keep = Callable[[Effect, Json], None]
"""Called before a commit, with what will have been done and a mark by which one can tell later whether it was. What it
is given is durable when it returns; what it raises, rolls back."""


class RowConflict(InputError):
    """Rows are not as they are to be before something is written over them; nothing was written. `names`: which."""

    names: tuple[str, ...] = ()

    @staticmethod
    def over(database: str, places: Iterable[tuple[str, str]]) -> RowConflict:
        """`places`: tables and keys, in the database of this name."""
        names = tuple(f"{database}/{table}/{as_name(key)}".rstrip("/") for table, key in places)
        error = RowConflict(f"somebody else has changed {', '.join(names[:20])}")
        error.names = names
        return error


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


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transaction that is open.

    Attributes:
        is_open: whether it still is.
        is_committed: whether it was committed; None: the engine does not know, so the rows tell.
        waiting: who waits for it, in words.
    """

    is_open: bool
    is_committed: bool | None = False
    waiting: tuple[str, ...] = ()


class Engine(Protocol):
    """One database. Not for several threads.

    Errors of a database carry values of rows: an engine raises `InputError` and `HostError` with messages without any,
    which name kind, table, column and constraint. Where the connection is lost while it commits, it raises `InDoubt`.
    """

    modes: frozenset[Mode]
    """How it can take actions back."""

    def schema(self) -> Schema:
        """The tables that may be used, with their columns and keys."""
        ...

    def read(self, operation: Sql, mode: Mode) -> Reading:
        """What statements are about. Nothing is run.

        Raises:
            InputError: one of them is none, is refused, or cannot be taken back in this mode.
        """
        ...

    def lease(self, tables: Collection[str]) -> None:
        """Keep other sessions of ours from tables until the engine is closed.

        Raises:
            InputError: another one has them.
        """
        ...

    def rehearse(self, operation: Sql, mode: Mode) -> Effect:
        """Return what statements would do: they are run, and rolled back.

        Raises:
            InputError: they fail, or do more than they may.
            HostError: the database is busy, or away.
        """
        ...

    def perform(self, operation: Sql, keep: Keep) -> None:
        """Run statements, call `keep`, and commit.

        Raises:
            InputError, HostError: as `rehearse`; nothing was done.
            InDoubt: the connection was lost while it was committed.
        """
        ...

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """Whether what was handed to `Keep` with this mark was committed.

        Raises:
            InDoubt: nobody can tell, at least not now.
        """
        ...

    def conflicting(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        """Rows that an effect would take away or bring, and that are not as they were when it was recorded.

        By table and key, as they are now; None: there is none. Rows without key have the key "".
        """
        ...

    def write(self, effect: Effect, keep: Keep) -> None:
        """Take the rows away that an effect removes, and bring those that it adds; all or nothing.

        Raises:
            RowConflict: something is not as it is to be before.
            Rejected: the database refuses it.
            HostError: the database is busy, or away.
            InDoubt: the connection was lost while it was committed.
        """
        ...

    def open_transaction(self, action: str, operation: Sql, keep: Keep) -> None:
        """Run statements, call `keep`, and leave the transaction open under the name of the action.

        Raises:
            InputError, HostError: as `rehearse`; nothing was done.
        """
        ...

    def is_durable(self) -> bool:
        """Return whether an open transaction outlives the process that opened it."""
        ...

    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        """How an open transaction stands, as far as the engine itself knows."""
        ...

    def end_transaction(self, action: str, *, commit: bool) -> None:
        """Commit an open transaction, or roll it back. Nothing if there is none.

        Raises:
            HostError: the database is away.
            InDoubt: the connection was lost while it was committed.
        """
        ...

    def close(self) -> None:
        """Let go of all connections and leases. Transactions that cannot survive that are rolled back."""
        ...


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
