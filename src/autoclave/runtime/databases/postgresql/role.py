"""The role of the settings at work in a transaction of the user, and kept from being anybody else.

What is proposed runs in a function that belongs to the role and has its rights. PostgreSQL itself lets nothing that
runs in such a function change role or session authorization, however deep below it is called, nor begin or end a
transaction. When it is over the connection is the user's again, with the settings that it had. The function is in the
temporary schema of the connection; before each call it is compared with what was made, for the role could alter it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

from autoclave.core import HostError
from autoclave.runtime.databases.operations import Parameter
from autoclave.runtime.databases.postgresql.catalogue import quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.functions import OF_FUNCTION, require_allowed

_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.autoclave_role(statement pg_catalog.text) RETURNS pg_catalog.void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = {path} SET row_security = on AS $autoclave$
BEGIN EXECUTE statement; END $autoclave$
"""
_MADE = "SELECT p.oid, p.*::pg_catalog.text FROM pg_catalog.pg_proc p WHERE p.oid = {oid}"
_OID = "pg_catalog.to_regprocedure('pg_temp.autoclave_role(pg_catalog.text)')"


class Role:
    """The role on one connection. It must have no transaction, or one that nobody has acted in."""

    def __init__(self, server: Server, connection: Any) -> None:
        self._server, self.connection = server, connection
        self._is_of_transaction = connection.info.transaction_status != 0
        path = ", ".join([*map(quoted, server.schemas), "pg_temp"])
        connection.execute(f"SET ROLE {quoted(server.settings.role)}")
        connection.execute(_FUNCTION.format(path=path).encode())
        connection.execute("SET ROLE NONE")
        self._oid, self._made = connection.execute(_MADE.format(oid=_OID)).fetchone()

    def run(self, text: str) -> None:
        """Run one text of SQL as the role.

        Raises:
            HostError: what is called is not what was made any more.
        """
        row = self.connection.execute(_MADE.format(oid=self._oid)).fetchone()
        if row is None or row[1] != self._made:
            raise HostError(
                f"{self._server.where}: the statements changed how they are run. Fix: look at what they call"
            )
        self.connection.execute("SELECT pg_temp.autoclave_role(%s::pg_catalog.text)", (text,))
        self._server.settle(self.connection)

    def end(self) -> None:
        """Have all that was put off be checked, as the role, and take away what was made in this transaction."""
        self.run("SET CONSTRAINTS ALL IMMEDIATE")
        if self._is_of_transaction:  # a transaction that did away with something temporary cannot be prepared
            self.connection.execute("DROP FUNCTION pg_temp.autoclave_role(pg_catalog.text)")


class Prepared:
    """A statement on rows that is ready to be run by a role, for some values. `call` runs it."""

    def __init__(self, role: Role, text: str, values: Sequence[Parameter]) -> None:
        from psycopg import sql

        self._role = role
        types = f" ({', '.join(map(_type_of, values))})" if values else ""
        role.run(f"PREPARE autoclave{types} AS {text}")
        literals = [sql.Literal(value if _is_typed(value) else repr(value)) for value in values]
        given = ", ".join(each.as_string(role.connection) for each in literals)
        self.call = f"EXECUTE autoclave{f' ({given})' if given else ''}"

    def types(self) -> Sequence[str]:
        """The types of its values, as the server takes them."""
        return self._role.connection.execute(
            "SELECT parameter_types::pg_catalog.oid[]::pg_catalog.regtype[]::pg_catalog.text[] "
            "FROM pg_catalog.pg_prepared_statements WHERE name = 'autoclave'"
        ).fetchone()[0]

    def forget(self) -> None:
        self._role.run("DEALLOCATE autoclave")


def require_callees(role: Role, text: str, allowed: Collection[str], number: int, types: Sequence[str] = ()) -> bool:
    """Check what a statement on rows calls, for which the server makes a function of it; see `require_allowed`.

    `types`: those of its values.
    """
    made = f"pg_temp.autoclave_look({', '.join(types)})"
    role.run(f"CREATE FUNCTION {made} RETURNS void LANGUAGE sql BEGIN ATOMIC {text}\n; END")
    found = require_allowed(role.connection, OF_FUNCTION, allowed, number, function=made)
    role.run(f"DROP FUNCTION {made}")
    return found


def _type_of(value: Parameter) -> str:
    if isinstance(value, bool):
        return "pg_catalog.bool"
    if isinstance(value, int):
        fits = [bits for bits in (16, 32, 64) if -(1 << bits - 1) <= value < 1 << bits - 1]
        return f"pg_catalog.int{fits[0] // 8}" if fits else "pg_catalog.numeric"
    if isinstance(value, float):  # as such a number in SQL: as float8, more than 15 digits of it would be rounded
        return "pg_catalog.numeric" if isfinite(value) else "pg_catalog.float8"
    return "unknown"


def _is_typed(value: Parameter) -> bool:
    return value is None or isinstance(value, bool | str)
