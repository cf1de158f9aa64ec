"""Connections to a PostgreSQL server, transactions on them, how one that nobody saw the end of ended, and errors.

Errors are told in words that hold no value of a row.
"""

import contextlib
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.sections import read_sections
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS, Catalogue, catalogue_of
from autoclave.runtime.databases.servers import AWAY, BUSY, LACKS, ServerEngine, translating
from autoclave.runtime.interface import InDoubt

TOO_MANY = "AC001"
"""The error of the recorder when an action changes too many rows."""
_WORDS = {
    "57014": "a statement ran longer than statement_timeout_s",
    "42501": "the role may not do that",
    "25006": "the database may be read only",
}
_BUSY = ("55P03", "40P01", "40001")
_CONNECT_S = 10
_WITH_RIGHTS_ON_SETTINGS = 150_000
"""The version of the server."""
_BLINDING = ("session_replication_role", "track_counts")
"""Settings by which triggers fire and rows are counted."""


SQL = {name: "\n".join(lines) for name, lines in read_sections(Path(__file__).with_name("queries.sql")).items()}


class Server(ServerEngine):
    """One database of a PostgreSQL server."""

    has_marks = True

    @property
    def schemas(self) -> tuple[str, ...]:
        return self.settings.schemas or ("public",)

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return translating(self.where, psycopg.Error, explained)

    def is_alive(self, connection: Any) -> bool:
        return not (connection.closed or connection.broken)

    def connect(self) -> Any:
        settings = self.settings
        return psycopg.connect(
            host=settings.host or None,
            port=settings.port or None,
            dbname=settings.dbname,
            user=settings.user or None,
            password=self._password or None,
            application_name="autoclave",
            connect_timeout=_CONNECT_S,
            autocommit=True,
            prepare_threshold=None,
        )

    def require_rights(self, connection: Any) -> None:
        """Check that the role is one with few rights, which the user may be."""
        role = self.settings.role
        row = connection.execute(SQL["rights of the role"], {"role": role}).fetchone()
        may_blind = connection.info.server_version >= _WITH_RIGHTS_ON_SETTINGS and any(
            connection.execute("SELECT pg_catalog.has_parameter_privilege(%s, %s, 'SET')", (role, name)).fetchone()[0]
            for name in _BLINDING
            if row
        )
        if not role:
            wrong = "name a role with few rights, which does what is proposed"
        elif row is None:
            wrong = "there is none"
        elif row[0] or may_blind:
            wrong = "may do everything; name one with the least rights that do"
        elif not row[1]:
            wrong = f"the user is no member of it. Fix: GRANT {role} TO the user"
        elif not row[2]:
            wrong = f"may make nothing temporary. Fix: GRANT TEMPORARY ON DATABASE {self.settings.dbname} TO {role}"
        else:
            return
        raise InputError(f"{self.where}: role {role}: {wrong}")

    def catalogue_of(self, connection: Any) -> Catalogue:
        return catalogue_of(connection, self.schemas)

    @contextlib.contextmanager
    def transaction(self) -> Generator[Any]:
        with self.translated():
            used = self.connection
            try:
                used.execute("DISCARD TEMP")
                self.begin(used)
                yield used
            finally:
                if not used.closed and used.info.transaction_status != 0:
                    with contextlib.suppress(psycopg.OperationalError):  # the server rolls back by itself
                        used.execute("ROLLBACK")

    def begin(self, connection: Any) -> None:
        """Begin a transaction without earlier settings; raise HostError if the server does not count changed rows."""
        connection.execute("DEALLOCATE ALL")
        connection.execute("BEGIN")
        self.settle(connection)
        if connection.execute("SELECT pg_catalog.current_setting('track_counts')").fetchone() != ("on",):
            raise HostError(f"{self.where}: the server does not count rows. Fix: set track_counts = on")

    def settle(self, connection: Any) -> None:
        """Have the settings that mean something be what they are to be, in this transaction, whatever was set before.

        Values are written and read as images hold them, and names in what the catalogue says are whole.
        """
        values = {
            **dict(SETTINGS),
            "lock_timeout": f"{int(self.settings.lock_timeout_s * 1000)}",
            "statement_timeout": f"{int(self.settings.statement_timeout_s * 1000)}",
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
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            if error.sqlstate and not error.sqlstate.startswith(("08", "57")):
                raise
            connection.close()
            raise InDoubt(f"{self.where}: the connection was lost while it was committed") from None

    def try_lease(self, connection: Any, table: str) -> bool:
        query = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))"
        return connection.execute(query, (f"autoclave/{table}",)).fetchone()[0]

    def mark(self, connection: Any) -> dict[str, str]:
        query = "SELECT pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_postmaster_start_time()::text"
        number, started = connection.execute(query).fetchone()
        return {"transaction": number, "started": started}

    def status(self, mark: Json) -> tuple[str | None, bool]:
        """Return the end of a transaction (`committed`, `aborted`, `in progress`; None: it is forgotten), and whether
        the server has run since: a number that was lost in a crash may be given again.
        """
        with self.translated():
            row = self.connection.execute(
                "SELECT CASE WHEN %s::xid8 < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) "
                "OR pg_catalog.pg_postmaster_start_time()::text = %s THEN pg_catalog.pg_xact_status(%s::xid8) "
                "ELSE 'aborted' END, pg_catalog.pg_postmaster_start_time()::text = %s",
                (mark["transaction"], mark["started"], mark["transaction"], mark["started"]),
            ).fetchone()
        return row[0], row[1]


def explained(error: Any) -> AutoclaveError:
    """Kind, table, column and constraint of an error, without what the server says of values."""
    state, kind = error.sqlstate or "", type(error).__name__
    if state in _BUSY:
        return HostError(BUSY)
    if state[:2] in ("53", "58"):
        return HostError(LACKS.format(kind))
    if not state and isinstance(error, psycopg.DataError):
        return InputError(f"a value cannot be sent ({kind}); a text has no NUL in it")
    if not state or (state[:2] in ("08", "57") and state != "57014"):
        return HostError(AWAY.format(kind))
    if state == TOO_MANY:
        return InputError("changes more rows than max_rows; do it in parts, or have the limit raised")
    places = {what: getattr(error.diag, f"{what}_name") for what in ("table", "column", "constraint", "datatype")}
    named = "".join(f", {what} {name}" for what, name in places.items() if name)
    words = _WORDS.get(state) or re.sub("(?<=[a-z])(?=[A-Z])", " ", kind).lower()
    return InputError(f"{words} ({state}{named})")
