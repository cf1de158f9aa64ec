"""Connections to a MariaDB server, transactions on them, and errors, in words that hold no value of a row.

What a session means is set by us on each connection: strict types, the time zone UTC, Unicode, quotes and escapes as
the parser takes them. A transaction is serializable, and its clock stands still.
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.databases.mariadb.values import literal_of
from autoclave.runtime.databases.servers import AWAY, BUSY, LACKS, ServerEngine, translating
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
    "unique_checks": 1,
    "completion_type": "'NO_CHAIN'",
    "sql_safe_updates": 0,
    "sql_select_limit": "DEFAULT",
    "group_concat_max_len": 16_777_216,
}
"""Session settings that the code relies on, whatever those of the server are."""
_WORDS = {
    1451: "a foreign key refers to it",
    1452: "a foreign key must refer to something that is there",
    1690: "a number is out of range",
    1969: "a statement ran longer than statement_timeout_s",
    1906: "a column that the database fills itself was given a value",
}
"""Of errors whose own names say less."""
_BUSY = (1205, 1213, 1020, 3572)
_AWAY = (2002, 2003, 2006, 2013, 2014, 2055, 1053, 1927, 1152, 1158, 1159, 1160, 1161, 4031)
_LACKS = (1021, 1037, 1040, 1041, 1114, 1203, 1226, 3, 28)
_NO_ENTRY = (1045, 1698, 1049)
_OF_REFERENCE = re.compile(r"CONSTRAINT `([\w$]+)` FOREIGN KEY")
_NAMED = {1062: re.compile(r" for key '([\w.$]+)'$"), 1451: _OF_REFERENCE, 1452: _OF_REFERENCE}
_HARMLESS = {"USAGE", "PROCESS"}


class Server(ServerEngine):
    """Some schemas of a MariaDB server."""

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or (self.settings.dbname,)

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return translating(self.where, pymysql.Error, explained)

    def is_alive(self, connection: Any) -> bool:
        return connection.open

    def connect(self) -> Any:
        settings = self.settings
        is_local = not settings.host or settings.host.startswith("/")
        way = (f"{settings.host}/mysqld.sock" if settings.host else _SOCKET) if is_local else None
        if way and not Path(way).is_socket():
            raise HostError(f"{self.where}: {AWAY.format('there is no socket')}")
        connection = pymysql.connect(
            host=settings.host,
            port=settings.port,
            unix_socket=way,
            connect_timeout=_CONNECT_S,
            user=settings.user or None,
            password=self._password,
            database=self.schemas[0],
            charset="utf8mb4",
            conv={},
            autocommit=True,
            local_infile=False,
            program_name="autoclave",
        )
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

    @contextlib.contextmanager
    def transaction(self, *, is_exact: bool = False) -> Generator[Any]:
        """A transaction that is rolled back unless the block commits it (`commit`).

        `is_exact`: rows are written as they were, whatever the server would think of them.
        """
        with self.translated():
            used = self.connection
            self.begin(used, is_exact=is_exact)
            try:
                yield used
            finally:
                if used.open:
                    with contextlib.suppress(pymysql.Error):  # the server rolls back by itself
                        do(used, "ROLLBACK")

    def begin(self, connection: Any, *, is_exact: bool = False) -> None:
        """Begin a transaction, whose clock stands still."""
        do(
            connection,
            f"SET SESSION timestamp = {time.time():.6f}, sql_mode = '{_EXACT if is_exact else _STRICT}', "
            f"foreign_key_checks = {int(not is_exact)}, check_constraint_checks = {int(not is_exact)}",
        )
        do(connection, "START TRANSACTION")

    @contextlib.contextmanager
    def looking(self) -> Generator[Any]:
        """Rows as they were committed, without waiting for those who hold them."""
        with self.translated():
            do(self.connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with self.transaction() as connection:
            yield connection

    def commit(self, connection: Any) -> None:
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


def rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def explained(error: Any) -> AutoclaveError:
    number = number_of(error)
    if number in _BUSY:
        return HostError(BUSY)
    if number in _NO_ENTRY:
        return InputError("the server does not let the user in, or has no such database")
    if number in _LACKS:
        return HostError(LACKS.format(number))
    if number in _AWAY or isinstance(error, pymysql.InterfaceError):
        return HostError(AWAY.format(number))
    return InputError(told(error))


def number_of(error: Exception) -> int:
    """The number of an error; 0: it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def told(error: Exception) -> str:
    """Kind and constraint of an error, without what the server says of values."""
    number, message = number_of(error), f"{error.args[-1]}"
    named = _NAMED[number].search(message) if number in _NAMED else None
    names = [name.replace("_", " ").lower() for name, value in vars(ER).items() if value == number]
    kind = _WORDS.get(number) or next(iter(names), "MariaDB refuses it")
    return f"{kind} ({number}{f', constraint {named[1]}' if named else ''})"
