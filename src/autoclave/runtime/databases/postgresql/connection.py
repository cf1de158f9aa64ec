"""Connections to a PostgreSQL server, transactions on them, and how a transaction that nobody saw the end of ended."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS
from autoclave.runtime.databases.postgresql.failures import translated
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import InDoubt

_CONNECT_S = 10
_WITH_RIGHTS_ON_SETTINGS = 150_000
"""The version of the server."""


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
        words = {name: value for name, value in given.items() if value is not None}
        return psycopg.connect(**words, autocommit=True, prepare_threshold=None)

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
            "pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER'), pg_catalog.has_database_privilege(r.oid, "
            "pg_catalog.current_database(), 'TEMPORARY') FROM pg_catalog.pg_roles r WHERE r.rolname = %s",
            (role,),
        ).fetchone()
        if row is None:
            raise InputError(f"{self.where}: role {role}: there is none")
        if row[0] or row[1] or self._may_blind(connection):
            raise InputError(f"{self.where}: role {role}: may do everything; name one with the least rights that do")
        if not row[2]:
            raise InputError(f"{self.where}: role {role}: the user is no member of it. Fix: GRANT {role} TO the user")
        if not row[3]:
            told = f"GRANT TEMPORARY ON DATABASE {self.settings.dbname} TO {role}"
            raise InputError(f"{self.where}: role {role}: may make nothing temporary. Fix: {told}")

    def _may_blind(self, connection: Any) -> bool:
        """Whether the role may change the settings by which triggers fire and rows are counted."""
        if connection.info.server_version < _WITH_RIGHTS_ON_SETTINGS:
            return False
        query = (
            "SELECT pg_catalog.bool_or(pg_catalog.has_parameter_privilege(%s, name, 'SET')) "
            "FROM pg_catalog.unnest(%s::pg_catalog.text[]) name"
        )
        return connection.execute(query, (self.settings.role, ["session_replication_role", "track_counts"])).fetchone()[
            0
        ]

    @contextlib.contextmanager
    def transaction(self, connection: Any | None = None) -> Generator[Any]:
        """A transaction that is rolled back unless the block commits it (`commit`)."""
        import psycopg

        with translated(self.where):
            used = connection or self.connection
            try:
                used.execute("DISCARD TEMP")
                self.begin(used)
                yield used
            finally:
                if not used.closed and used.info.transaction_status != 0:
                    with contextlib.suppress(psycopg.OperationalError):  # the server rolls back by itself
                        used.execute("ROLLBACK")

    def begin(self, connection: Any) -> None:
        """Begin a transaction, with nothing left of what earlier ones set.

        Raises:
            HostError: the server does not count rows, by which changes are seen that nobody listens to.
        """
        connection.execute("DEALLOCATE ALL")
        connection.execute("BEGIN")
        self.settle(connection)
        if connection.execute("SELECT pg_catalog.current_setting('track_counts')").fetchone() != ("on",):
            raise HostError(f"{self.where}: the server does not count rows. Fix: set track_counts = on")

    def settle(self, connection: Any) -> None:
        """Have the settings that mean something be what they are to be, in this transaction, whatever was set before.

        Values are written and read as images hold them, and names in what the catalogue says are whole.
        """
        timeouts = {
            "lock_timeout": self.settings.lock_timeout_s,
            "statement_timeout": self.settings.statement_timeout_s,
        }
        values = dict(SETTINGS) | {name: f"{int(seconds * 1000)}" for name, seconds in timeouts.items()}
        values |= {
            "search_path": "pg_catalog",
            "row_security": "off",
            "standard_conforming_strings": "on",
            "array_nulls": "on",
        }
        query = (
            "SELECT pg_catalog.set_config(name, value, true) "
            "FROM ROWS FROM (pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[])) "
            "AS given (name, value)"
        )
        connection.execute("RESET ALL")
        connection.execute(query, (list(values), list(values.values())))

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

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or ("public",)

    def lease(self, table: str) -> bool:
        """Whether no other session of ours has a table; from now on this one has it."""
        with translated(self.where):
            if self._leases.closed or self._leases.broken:
                raise HostError(f"{self.where}: the connection with the leases was lost. Fix: open the session again")
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
