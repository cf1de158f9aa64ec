"""Parts that the engines of database servers share: errors, connections and leases."""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.databases.engine import OpenTransactions, SqlEngine
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.tables import BaseCatalogue, table_of

BUSY = "others have locked what it needs. Fix: wait, and try again"
LACKS = "the server lacks something ({}). Fix: look at its disk"
AWAY = "does not answer ({}). Fix: look whether the server runs"


@contextlib.contextmanager
def translating(where: str, driver_error: type[Exception], explain: Callable[[Any], AutoclaveError]) -> Generator[None]:
    """Raise errors of a driver as ours; `explain` makes one of them, whose message gets `where` before it.

    Raises InputError where the statements cannot be done, and HostError where the database is busy or away.
    """
    try:
        yield
    except AutoclaveError:
        raise
    except driver_error as error:
        ours = explain(error)
        raise type(ours)(f"{where}: {ours}") from None
    except (UnicodeError, OverflowError) as error:
        raise InputError(f"{where}: a value cannot be read or written ({type(error).__name__})") from None


class ServerEngine(SqlEngine):
    """One database of a server, as `user` of the settings. Reconnects when it has been away."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        super().__init__(name, settings)
        self._password = password
        self._connection: Any = None
        self._leases: Any = None
        self.transactions = OpenTransactions(self)
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
    def is_alive(self, connection: Any) -> bool:
        """Return whether a connection can be used."""

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """A transaction that is rolled back unless it is committed in the block."""

    @abstractmethod
    def require_rights(self, connection: Any) -> None:
        """Check who does what is proposed. Raises InputError where that is too much, or too little."""

    @abstractmethod
    def try_lease(self, connection: Any, table: str) -> bool:
        """Return whether no other session of ours has a table; from now on this connection has it."""

    @abstractmethod
    def catalogue_of(self, connection: Any) -> BaseCatalogue[Any]:
        """The tables that there are."""

    @property
    def connection(self) -> Any:
        """The connection for one thing after the other."""
        if self._connection is None or not self.is_alive(self._connection):
            self._connection = self.connect()
        return self._connection

    def told(self) -> Iterator[str]:
        with self.transaction() as connection:
            tables = self.catalogue_of(connection).tables
        for _, table in sorted(tables.items()):
            yield from table.told()

    def lease(self, tables: Collection[str]) -> None:
        with self.translated():
            if not self.is_alive(self._leases):
                raise HostError(f"{self.where}: the connection with the leases was lost. Fix: open the session again")
            for place in sorted({table_of(table) for table in tables}):
                if not self.try_lease(self._leases, place):
                    raise InputError(f"{self.where}: another session works on table {place}; wait for it, or end it")

    def close(self) -> None:
        self.transactions.close()
        for connection in (self._connection, self._leases):
            if connection is not None and self.is_alive(connection):
                connection.close()
