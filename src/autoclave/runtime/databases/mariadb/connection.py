"""Connections to a MariaDB server, and transactions on them.

What a session means is set by us on each connection: strict types, the time zone UTC, Unicode, quotes and escapes as
the parser takes them. A transaction is serializable, and its clock stands still.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.mariadb.failures import number_of, translated
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import InDoubt

_CONNECT_S = 10
_EVER_S = 31_536_000
_IDLE_S = 600
"""After which the server rolls back what a process that hangs, or a way that is cut, has left open."""
_SOCKET = "/run/mysqld/mysqld.sock"
_PORT = 3306
_STRICT = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_EXACT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
_HARMLESS = {"USAGE", "PROCESS"}
Row = tuple[Any, ...]


class Server:
    """One server, as `user` of the settings. Reconnects when it has been away."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self.where, self.settings, self._password = f"database {name}", settings, password
        self._connection: Any = None
        self._leases: Any = None
        with contextlib.ExitStack() as opening:
            opening.callback(self.close)
            with translated(self.where):
                self._require_rights(self.connection)
                self._leases = self.connect()
            opening.pop_all()

    def connect(self) -> Any:
        """A new connection."""
        import pymysql

        settings = self.settings
        connection = pymysql.connect(
            host=settings.host or "localhost",
            user=settings.user or None,
            password=self._password,
            database=self.schemas[0],
            charset="utf8mb4",
            conv={},
            autocommit=True,
            local_infile=False,
            program_name="autoclave",
            defer_connect=True,
        )
        connection.connect(self._way())
        with contextlib.ExitStack() as unless_set:
            unless_set.callback(let_go, connection)
            do(connection, f"SET SESSION {', '.join(self._settings())}")
            do(connection, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            unless_set.pop_all()
        return connection

    def _way(self) -> socket.socket:
        """A socket that is connected to the server."""
        host, port = self.settings.host, self.settings.port or _PORT
        try:
            if host and not host.startswith("/"):
                way = socket.create_connection((host, port), _CONNECT_S)
            else:
                way = socket.socket(socket.AF_UNIX)
                try:
                    way.settimeout(_CONNECT_S)
                    way.connect(f"{host}/mysqld.sock" if host else _SOCKET)
                except OSError:
                    way.close()
                    raise
        except OSError as error:
            raise HostError(
                f"{self.where}: does not answer ({type(error).__name__}). Fix: look whether the server runs"
            ) from None
        way.settimeout(None)
        return way

    def _settings(self) -> Iterator[str]:
        """What we rest on, whatever the server's usual settings are."""
        lock_s = max(1, round(self.settings.lock_timeout_s))
        yield f"sql_mode = '{_STRICT}'"
        yield "time_zone = '+00:00'"
        yield f"innodb_lock_wait_timeout = {lock_s}"
        yield f"lock_wait_timeout = {lock_s}"
        yield f"max_statement_time = {self.settings.statement_timeout_s}"
        yield f"wait_timeout = {_EVER_S}"
        yield f"idle_transaction_timeout = {_IDLE_S}"
        yield "sql_auto_is_null = 0"
        yield "foreign_key_checks = 1"
        yield "unique_checks = 1"
        yield "check_constraint_checks = 1"
        yield "completion_type = 'NO_CHAIN'"
        yield "sql_safe_updates = 0"
        yield "sql_select_limit = DEFAULT"
        yield "group_concat_max_len = 16777216"

    @property
    def connection(self) -> Any:
        """The connection for one thing after the other."""
        if self._connection is None or not self._connection.open:
            self._connection = self.connect()
        return self._connection

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or (self.settings.dbname,)

    def close(self) -> None:
        for connection in (self._connection, self._leases):
            if connection is not None:
                let_go(connection)

    def _require_rights(self, connection: Any) -> None:
        """Check that the user may do little, and see what its statements may set off.

        Raises:
            InputError: it may do more than change rows, or cannot see triggers.
        """
        user, _, host = rows(connection, "SELECT CURRENT_USER()")[0][0].rpartition("@")
        grantee = "'" + f"'{user}'@'{host}'".replace("'", "''") + "'"
        everywhere = {
            kind
            for (kind,) in rows(
                connection, f"SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = {grantee}"
            )
        }
        if too_much := everywhere - _HARMLESS:
            raise InputError(
                f"{self.where}: user {self.settings.user}: has rights on all schemas "
                f"({', '.join(sorted(too_much)[:5])}); name one with the least rights that do"
            )
        given = rows(
            connection,
            "SELECT REPLACE(table_schema, '\\\\', ''), privilege_type FROM information_schema.schema_privileges "
            f"WHERE grantee = {grantee}",
        )
        wanted = [f"TRIGGER ON {schema}.*" for schema in self.schemas if (schema, "TRIGGER") not in given]
        wanted += [] if "PROCESS" in everywhere else ["PROCESS ON *.*"]
        if wanted:
            raise InputError(
                f"{self.where}: user {self.settings.user}: cannot see triggers, or foreign keys of other schemas. "
                f"Fix: GRANT {wanted[0]} TO it; no statement that defines one is let through"
            )

    # --- Transactions -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, is_exact: bool = False) -> Generator[Any]:
        """A transaction that is rolled back unless the block commits it (`commit`).

        `is_exact`: rows are written as they were, whatever the server would think of them.
        """
        import pymysql

        with translated(self.where):
            used = self.connection
            do(
                used,
                f"SET SESSION timestamp = {time.time():.6f}, sql_mode = '{_EXACT if is_exact else _STRICT}', "
                f"foreign_key_checks = {int(not is_exact)}, check_constraint_checks = {int(not is_exact)}",
            )
            do(used, "START TRANSACTION")
            try:
                yield used
            finally:
                if used.open:
                    with contextlib.suppress(pymysql.Error):  # the server rolls back by itself
                        do(used, "ROLLBACK")

    @contextlib.contextmanager
    def looking(self) -> Generator[Any]:
        """Rows as they were committed, without waiting for those who hold them."""
        with translated(self.where):
            do(self.connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with self.transaction() as connection:
            yield connection

    def commit(self, connection: Any) -> None:
        """Commit.

        Raises:
            InDoubt: the connection was lost meanwhile.
        """
        import pymysql

        try:
            do(connection, "COMMIT")
        except pymysql.Error as error:
            if connection.open and number_of(error) not in (2006, 2013, 1053, 1927):
                raise
            let_go(connection)
            raise InDoubt(f"{self.where}: the connection was lost while it was committed") from None

    def lease(self, table: str) -> bool:
        """Whether no other session of ours has a table; from now on this one has it."""
        name = hashlib.sha256(f"autoclave/{table}".encode()).hexdigest()[:60]
        with translated(self.where):
            if not self._leases.open:
                raise HostError(f"{self.where}: the connection with the leases was lost. Fix: open the session again")
            return rows(self._leases, f"SELECT GET_LOCK('{name}', 0)")[0][0] == "1"


def do(connection: Any, statement: str) -> int:
    """Run a statement; how many rows it changed."""
    with connection.cursor() as cursor:
        return cursor.execute(statement)


def rows(connection: Any, query: str) -> list[Row]:
    """All rows that a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def let_go(connection: Any) -> None:
    """Close a connection, whatever has become of it."""
    import pymysql

    with contextlib.suppress(pymysql.Error, OSError):
        connection.close()
