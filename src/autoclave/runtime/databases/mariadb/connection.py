"""Connections to a MariaDB server, and transactions on them.

What a session means is set by us on each connection: strict types, the time zone UTC, Unicode, quotes and escapes as
the parser takes them. A transaction is serializable, and its clock stands still.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Generator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.mariadb.failures import number_of, translated
from autoclave.runtime.databases.mariadb.values import literal_of
from autoclave.runtime.databases.servers import AWAY, BaseServer
from autoclave.runtime.interface import InDoubt

_CONNECT_S, _SOCKET = 10, "/run/mysqld/mysqld.sock"
_STRICT = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_EXACT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
_SETTINGS = {
    "sql_mode": f"'{_STRICT}'",
    "time_zone": "'+00:00'",
    "wait_timeout": 31_536_000,
    "idle_transaction_timeout": 600,  # of a process that hangs, or a way that is cut
    "sql_auto_is_null": 0,
    "foreign_key_checks": 1,
    "unique_checks": 1,
    "check_constraint_checks": 1,
    "completion_type": "'NO_CHAIN'",
    "sql_safe_updates": 0,
    "sql_select_limit": "DEFAULT",
    "group_concat_max_len": 16_777_216,
}
"""What we rest on, whatever the server's usual settings are."""
_HARMLESS = {"USAGE", "PROCESS"}
Row = tuple[Any, ...]


class Server(BaseServer):
    """Some schemas of a MariaDB server."""

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or (self.settings.dbname,)

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return translated(self.where)

    def is_open(self, connection: Any) -> bool:
        return connection.open

    def connect(self) -> Any:
        """A new connection."""
        import pymysql

        settings = self.settings
        connection = pymysql.connect(
            host=settings.host or "localhost",
            port=settings.port,
            connect_timeout=_CONNECT_S,
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
        connection.connect(self._local_socket())
        lock_s = max(1, round(settings.lock_timeout_s))
        values = {
            **_SETTINGS,
            "innodb_lock_wait_timeout": lock_s,
            "lock_wait_timeout": lock_s,
            "max_statement_time": settings.statement_timeout_s,
        }
        with contextlib.ExitStack() as unless_set:
            unless_set.callback(connection.close)
            do(connection, f"SET SESSION {', '.join(f'{name} = {value}' for name, value in values.items())}")
            do(connection, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            unless_set.pop_all()
        return connection

    def _local_socket(self) -> socket.socket | None:
        """A socket that is connected to a server on this host, which the driver would leave open when it fails."""
        host = self.settings.host
        if host and not host.startswith("/"):
            return None
        with contextlib.ExitStack() as unless_connected:
            way = unless_connected.enter_context(socket.socket(socket.AF_UNIX))
            way.settimeout(_CONNECT_S)
            try:
                way.connect(f"{host}/mysqld.sock" if host else _SOCKET)
            except OSError as error:
                raise HostError(f"{self.where}: {AWAY.format(type(error).__name__)}") from None
            way.settimeout(None)
            unless_connected.pop_all()
        return way

    def require_rights(self, connection: Any) -> None:
        """Check that the user may do little, and sees what its statements may set off."""
        user, _, host = rows(connection, "SELECT CURRENT_USER()")[0][0].rpartition("@")
        grantee = literal_of(f"'{user}'@'{host}'")
        query = f"SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = {grantee}"
        everywhere = {kind for (kind,) in rows(connection, query)}
        query = "SELECT REPLACE(table_schema, '\\\\', ''), privilege_type FROM information_schema.schema_privileges "
        given = rows(connection, f"{query}WHERE grantee = {grantee}")
        wanted = [f"TRIGGER ON {schema}.*" for schema in self.schemas if (schema, "TRIGGER") not in given]
        wanted += [] if "PROCESS" in everywhere else ["PROCESS ON *.*"]
        if too_much := ", ".join(sorted(everywhere - _HARMLESS)[:5]):
            wrong = f"has rights on all schemas ({too_much}); name one with the least rights that do"
        elif wanted:
            wrong = f"cannot see triggers, or foreign keys of other schemas. Fix: GRANT {wanted[0]} TO it"
        else:
            return
        raise InputError(f"{self.where}: user {self.settings.user}: {wrong}")

    # --- Transactions -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, is_exact: bool = False) -> Generator[Any]:
        """A transaction that is rolled back unless the block commits it (`commit`).

        `is_exact`: rows are written as they were, whatever the server would think of them.
        """
        import pymysql

        with self.translated():
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
        with self.translated():
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
            connection.close()
            raise InDoubt(f"{self.where}: the connection was lost while it was committed") from None

    def try_lease(self, connection: Any, table: str) -> bool:
        name = hashlib.sha256(f"autoclave/{table}".encode()).hexdigest()[:60]
        return rows(connection, f"SELECT GET_LOCK('{name}', 0)")[0][0] == "1"


def do(connection: Any, statement: str) -> int:
    """Run a statement; how many rows it changed."""
    with connection.cursor() as cursor:
        return cursor.execute(statement)


def rows(connection: Any, query: str) -> list[Row]:
    """All rows that a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
