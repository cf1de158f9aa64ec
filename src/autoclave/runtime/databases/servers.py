"""Parts that the engines of database servers share: connections, leases, errors, open transactions, and the engine."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator
from importlib import import_module
from typing import Any, Generic, TypeVar

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.install import install_command
from autoclave.runtime.databases.clocks import Clocks
from autoclave.runtime.databases.engine import Json, TransactionState
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode

_AGAIN_S = 2.0

BUSY = "others have locked what it needs. Fix: wait, and try again"
LACKS = "the server lacks something ({}). Fix: look at its disk"
AWAY = "does not answer ({}). Fix: look whether the server runs"


@contextlib.contextmanager
def translating(where: str, driver_error: type[Exception], explain: Callable[[Any], AutoclaveError]) -> Generator[None]:
    """Raise errors of a driver as ours; `explain` makes one of them, whose message gets `where` before it.

    Raises:
        InputError: the statements cannot be done.
        HostError: the database is busy or away.
    """
    try:
        yield
    except AutoclaveError:
        raise
    except driver_error as error:
        ours = explain(error)
        raise type(ours)(f"{where}: {ours}") from None
    except (UnicodeError, OverflowError) as error:
        raise InputError(f"{where}: a value cannot be sent ({type(error).__name__})") from None


def require_installed(name: str, product: str, *modules: str) -> None:
    """Look that an engine has what it needs.

    Raises:
        HostError: something is not installed.
    """
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise HostError(f"database {name}: {product} needs {error.name}. Fix: {install_command('databases')}") from None


class BaseServer(ABC):
    """One database of a server, as `user` of the settings. Reconnects when it has been away."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self.where, self.settings, self._password = f"database {name}", settings, password
        self._connection: Any = None
        self._leases: Any = None
        with contextlib.ExitStack() as opening:
            opening.callback(self.close)
            with self.translated():
                self.require_rights(self.connection)
                self._leases = self.connect()
            opening.pop_all()

    @property
    @abstractmethod
    def schemas(self) -> tuple[str, ...]:
        """Those whose tables may be used."""

    @abstractmethod
    def connect(self) -> Any:
        """A new connection."""

    @abstractmethod
    def is_open(self, connection: Any) -> bool:
        """Whether a connection can be used."""

    @abstractmethod
    def translated(self) -> contextlib.AbstractContextManager[None]:
        """See `translating`."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """A transaction that is rolled back unless it is committed in the block."""

    @abstractmethod
    def require_rights(self, connection: Any) -> None:
        """Check who does what is proposed.

        Raises:
            InputError: somebody who may do too much, or too little.
        """

    @abstractmethod
    def try_lease(self, connection: Any, table: str) -> bool:
        """Whether no other session of ours has a table; from now on this connection has it."""

    @property
    def connection(self) -> Any:
        """The connection for one thing after the other."""
        if self._connection is None or not self.is_open(self._connection):
            self._connection = self.connect()
        return self._connection

    def lease(self, table: str) -> None:
        """See `Engine.lease`."""
        with self.translated():
            if not self.is_open(self._leases):
                raise HostError(f"{self.where}: the connection with the leases was lost. Fix: open the session again")
            if not self.try_lease(self._leases, table):
                raise InputError(f"{self.where}: another session works on table {table}; wait for it, or end it")

    def close(self) -> None:
        for connection in (self._connection, self._leases):
            if connection is not None and self.is_open(connection):
                connection.close()


class BaseTransactions(ABC):
    """Transactions of one server that stay open until somebody decides, or until their time is over."""

    def __init__(self) -> None:
        self._clocks = Clocks()

    @abstractmethod
    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        """See `Engine.transaction_state`."""

    @abstractmethod
    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over."""

    @abstractmethod
    def is_over(self, action: str) -> bool:
        """Roll back what is still open, on a connection of this thread's own; False: try again."""

    def expires(self, action: str, seconds: float) -> None:
        """Have it rolled back after some time."""

        def expire() -> None:
            if not self.is_over(action):
                self.expires(action, _AGAIN_S)

        self._clocks.after(seconds, expire)

    def close(self) -> None:
        """Stop the clocks. What the server keeps stays."""
        self._clocks.stop()


def prepared_as(action: str) -> str:
    """The name under which a server keeps an open transaction."""
    return f"autoclave-{action}"


ServerT = TypeVar("ServerT", bound=BaseServer)
TransactionsT = TypeVar("TransactionsT", bound=BaseTransactions)


class ServerDatabase(ABC, Generic[ServerT, TransactionsT]):
    """What engines of servers do alike. See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.TRANSACTION})

    def __init__(self, server: ServerT, transactions: TransactionsT) -> None:
        self._server, self._transactions = server, transactions
        self._settings, self._where = server.settings, server.where

    @abstractmethod
    def _catalogue_of(self, connection: Any) -> Any:
        """The tables that there are."""

    def close(self) -> None:
        self._transactions.close()
        self._server.close()

    def schema(self) -> Schema:
        with self._server.transaction() as connection:
            tables = self._catalogue_of(connection).tables
        return Schema({place: table.as_table() for place, table in tables.items()})

    def lease(self, tables: Collection[str]) -> None:
        for place in sorted({table_of(table) for table in tables}):
            self._server.lease(place)

    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        return self._transactions.transaction_state(action, mark)

    def end_transaction(self, action: str, *, commit: bool) -> None:
        self._transactions.end(action, commit=commit)
