"""Connections to a PostgreSQL server, transactions on them, and how a transaction that nobody saw the end of ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS, quoted
from autoclave.runtime.databases.postgresql.failures import translated
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import InDoubt

_CONNECT_S = 10


class Server:
    """One database, as `user` of the settings. Reconnects when it has been away."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self.where, self.settings, self._password = f"database {name}", settings, password
        self._connection: Any = None
        self._leases: Any = None
        with contextlib.ExitStack() as opening:
            opening.callback(self.close)
            with translated(self.where):
                self._require_roles(self.connection)
                self._leases = self.connect()
            opening.pop_all()

    def connect(self) -> Any:
        """A new connection."""
        import psycopg

        settings = self.settings
        given: dict[str, Any] = {
            "host": settings.host or None,
            "port": settings.port or None,
            "dbname": settings.dbname,
            "user": settings.user or None,
            "password": self._password or None,
            "application_name": "autoclave",
            "connect_timeout": _CONNECT_S,
        }
        return psycopg.connect(**{name: value for name, value in given.items() if value is not None}, autocommit=True)

    @property
    def connection(self) -> Any:
        """The connection for one thing after the other."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self.connect()
        return self._connection

    def close(self) -> None:
        for connection in (self._connection, self._leases):
            if connection is not None:
                connection.close()

    def _require_roles(self, connection: Any) -> None:
        """Check who does what is proposed.

        Raises:
            InputError: nobody is named, or somebody who may do everything.
        """
        role = self.settings.role
        if not role:
            raise InputError(f"{self.where}: role: name a role with few rights, which does what is proposed")
        row = connection.execute(
            "SELECT r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication, r.rolname = current_user, "
            "pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER') FROM pg_catalog.pg_roles r WHERE r.rolname = %s",
            (role,),
        ).fetchone()
        if row is None:
            raise InputError(f"{self.where}: role {role}: there is none")
        if row[0] or row[1]:
            raise InputError(f"{self.where}: role {role}: may do everything; name one with the least rights that do")
        if not row[2]:
            raise InputError(f"{self.where}: role {role}: the user is no member of it. Mend: GRANT {role} TO the user")

    @contextlib.contextmanager
    def transaction(self, connection: Any | None = None) -> Generator[Any]:
        """A transaction that is rolled back unless the block commits it (`commit`)."""
        import psycopg

        with translated(self.where):
            used = connection or self.connection
            used.execute("BEGIN")
            try:
                used.execute(f"SET LOCAL lock_timeout = {int(self.settings.lock_timeout_s * 1000)}")
                used.execute(f"SET LOCAL statement_timeout = {int(self.settings.statement_timeout_s * 1000)}")
                used.execute("SET LOCAL row_security = off")
                used.execute("SET LOCAL search_path = pg_catalog")  # names in what the catalogue says are whole
                yield used
            finally:
                if not used.closed and used.info.transaction_status != 0:
                    with contextlib.suppress(psycopg.OperationalError):  # the server rolls back by itself
                        used.execute("ROLLBACK")

    def commit(self, connection: Any) -> None:
        """Commit.

        Raises:
            InDoubt: the connection was lost meanwhile.
        """
        import psycopg

        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            if error.sqlstate and not error.sqlstate.startswith(("08", "57")):
                raise
            connection.close()
            raise InDoubt(f"{self.where}: the connection was lost while it was committed") from None

    def plain_texts(self, connection: Any) -> None:
        """Have values written and read as images hold them, in this transaction."""
        for name, value in (*SETTINGS, ("search_path", "pg_catalog")):
            connection.execute(f"SET LOCAL {name} = '{value}'")

    def as_role(self, connection: Any) -> None:
        """Have the rest of the transaction done by the role of the settings."""
        schemas = ", ".join([*map(quoted, self.schemas), "pg_temp"])
        connection.execute(f"SET LOCAL search_path = {schemas}")
        connection.execute(f"SET LOCAL ROLE {quoted(self.settings.role)}")

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or ("public",)

    def lease(self, table: str) -> bool:
        """Whether no other session of ours has a table; from now on this one has it."""
        with translated(self.where):
            if self._leases.closed or self._leases.broken:
                raise HostError(f"{self.where}: the connection with the leases was lost. Mend: open the session again")
            query = (
                "SELECT (SELECT count(*) > 0 FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.pid = "
                "pg_catalog.pg_backend_pid() AND l.objid = (k.key & 4294967295)::oid AND l.classid = "
                "((k.key >> 32) & 4294967295)::oid) OR pg_catalog.pg_try_advisory_lock(k.key) FROM "
                "(SELECT pg_catalog.hashtextextended(%s, 0) AS key) k"
            )
            return bool(self._leases.execute(query, (f"autoclave/{table}",)).fetchone()[0])

    # --- Marks ------------------------------------------------------------------------------------------------------

    def mark(self, connection: Any) -> dict[str, str]:
        """By what one can tell later whether the transaction that is open was committed."""
        query = "SELECT pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_postmaster_start_time()::text"
        number, started = connection.execute(query).fetchone()
        return {"transaction": number, "started": started}

    def status(self, mark: Json) -> tuple[str | None, bool]:
        """How a transaction ended (`committed`, `aborted`, `in progress`; None: it is forgotten), and whether the
        server has run since: a number that was lost in a crash may be given again.
        """
        with translated(self.where):
            row = self.connection.execute(
                "SELECT CASE WHEN %s::xid8 < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) "
                "OR pg_catalog.pg_postmaster_start_time()::text = %s THEN pg_catalog.pg_xact_status(%s::xid8) "
                "ELSE 'aborted' END, pg_catalog.pg_postmaster_start_time()::text = %s",
                (mark["transaction"], mark["started"], mark["transaction"], mark["started"]),
            ).fetchone()
        return row[0], row[1]
