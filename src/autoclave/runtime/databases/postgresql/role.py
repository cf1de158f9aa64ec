"""The role of the settings at work in a transaction of the user, and kept from being anybody else.

What is proposed runs in a function that belongs to the role and has its rights. PostgreSQL itself lets nothing that
runs in such a function change role or session authorization, however deep below it is called, nor begin or end a
transaction. When it is over the connection is the user's again, with the settings that it had. The function is in the
temporary schema of the connection; before each call it is compared with what was made, for the role could alter it.

What statements may call are functions of PostgreSQL's own that change nothing, and those that a person allows. A
function of somebody's own may say that it changes nothing, and do it all the same; so it must be allowed by name,
whether it is called by its name, by an operator, a cast, a column that is none, or by a view. Functions of extensions,
which the server's owner installed, are believed if they say that they change nothing. What tables themselves call
(defaults, conditions, triggers, policies) is theirs. What is called is read in the trees that the server makes of a
statement and of the rules of views, where each call has the number of its function.
"""

from collections.abc import Collection, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from psycopg import sql

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.operations import Parameter
from autoclave.runtime.databases.postgresql.connection import SQL, Server
from autoclave.runtime.databases.tables import quoted

_HARMLESS = frozenset(
    {"random", "random_normal", "gen_random_uuid", "clock_timestamp", "timeofday", "nextval", "currval", "lastval"}
)
"""Volatile, but all that they do is to give another value each time."""
_CLOCKS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "age", "txid_current", "pg_current_xact_id"}
)
_CALLED = Path(__file__).with_name("called.sql").read_text("utf-8")
OF_FUNCTION = (
    "d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass "
    "AND d.objid = pg_catalog.to_regprocedure(%(function)s)::pg_catalog.oid"
)
"""Of what a function with a body of SQL is made."""
OF_NEW = "d.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid"
"""Of what all is made that was defined in this transaction."""
_MADE = "SELECT p.oid, p.*::pg_catalog.text FROM pg_catalog.pg_proc p WHERE p.oid = {oid}"
_OID = "pg_catalog.to_regprocedure('pg_temp.autoclave_role(pg_catalog.text)')"


class Role:
    """The role in a transaction of the user that nobody has acted in."""

    def __init__(self, server: Server, connection: Any) -> None:
        self._server, self.connection = server, connection
        path = ", ".join([*map(quoted, server.schemas), "pg_temp"])
        connection.execute(f"SET ROLE {quoted(server.settings.role)}")
        connection.execute(SQL["function of the role"].format(path=path).encode())
        connection.execute("SET ROLE NONE")
        self._oid, self._made = connection.execute(_MADE.format(oid=_OID)).fetchone()

    def run(self, text: str) -> None:
        """Run one text of SQL as the role. Raises HostError where what is called is not what was made any more."""
        row = self.connection.execute(_MADE.format(oid=self._oid)).fetchone()
        if row is None or row[1] != self._made:
            raise HostError(
                f"{self._server.where}: the statements changed how they are run. Fix: look at what they call"
            )
        self.connection.execute("SELECT pg_temp.autoclave_role(%s::pg_catalog.text)", (text,))
        self._server.settle(self.connection)

    def prepare(self, text: str, values: Sequence[Parameter]) -> tuple[str, Sequence[str]]:
        """Prepare a statement on rows, as `autoclave`; what runs it, and the types of its values in the server."""
        types = f" ({', '.join(map(_type_of, values))})" if values else ""
        self.run(f"PREPARE autoclave{types} AS {text}")
        literals = [sql.Literal(each if isinstance(each, bool | str | None) else repr(each)) for each in values]
        given = ", ".join(each.as_string(self.connection) for each in literals)
        (found,) = self.connection.execute(
            "SELECT parameter_types::pg_catalog.oid[]::pg_catalog.regtype[]::pg_catalog.text[] "
            "FROM pg_catalog.pg_prepared_statements WHERE name = 'autoclave'"
        ).fetchone()
        return f"EXECUTE autoclave{f' ({given})' if given else ''}", found

    def end(self) -> None:
        """Have all that was put off be checked, as the role, and take away what was made in this transaction."""
        self.run("SET CONSTRAINTS ALL IMMEDIATE")
        self.connection.execute("DROP FUNCTION pg_temp.autoclave_role(pg_catalog.text)")


def require_callees(role: Role, text: str, allowed: Collection[str], number: int, types: Sequence[str] = ()) -> bool:
    """Check what a statement on rows with values of `types` calls, as a function of it; see `require_allowed`."""
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


def require_allowed(
    connection: Any,
    which: str,
    allowed: Collection[str],
    number: int,
    *,
    function: str | None = None,
    names: Collection[str] = (),
) -> bool:
    """Check what a statement calls, by whatever notation; return whether it gives the same the next time.

    `which`: `OF_FUNCTION`, for `function`, or `OF_NEW`; `names`: of functions that it calls besides, in any schema.

    Raises InputError where it calls what may do more than give a value.
    """
    are_deterministic = True
    values = {"function": function, "names": [*names]}
    for schema, name, is_pure, is_believed in connection.execute(_CALLED.format(which=which), values):
        is_own = schema == "pg_catalog"
        looks = is_own and "_to_xml" in name  # at tables that a statement does not name
        is_harmless = (is_pure and is_believed and not looks) or (is_own and name in _HARMLESS)
        if not is_harmless and f"{schema}.{name}" not in allowed:
            raise InputError(
                f"statement {number}: is refused: the function {schema}.{name} may do more than give a value; "
                "`functions` in the settings allows it"
            )
        are_deterministic &= is_pure and not (is_own and name in _CLOCKS)
    return are_deterministic
