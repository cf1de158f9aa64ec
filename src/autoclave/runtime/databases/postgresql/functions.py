"""Which functions statements may call: those of PostgreSQL's own that change nothing, and those that a person allows.

A function of somebody's own may say that it changes nothing, and do it all the same; so it must be allowed by name,
whether it is called by its name, by an operator, a cast, a column that is none, or by a view. Functions of extensions,
which the server's owner installed, are believed if they say that they change nothing. What tables themselves call
(defaults, conditions, triggers, policies) is theirs.

What is called is read in the trees that the server makes of a statement and of the rules of views, where each call has
the number of its function.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autoclave.core import InputError

_HARMLESS = frozenset(
    {"random", "random_normal", "gen_random_uuid", "clock_timestamp", "timeofday", "nextval", "currval", "lastval"}
)
"""Volatile, but all that they do is to give another value each time."""
_CLOCKS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "age", "txid_current", "pg_current_xact_id"}
)
_CALLED = r"""
WITH RECURSIVE used (class, oid, rule) AS (
    SELECT refclassid, refobjid, 0::pg_catalog.oid FROM pg_catalog.pg_depend d WHERE {which}
    UNION SELECT d.refclassid, d.refobjid, r.oid FROM used u JOIN pg_catalog.pg_rewrite r ON r.ev_class = u.oid
        AND u.class = 'pg_catalog.pg_class'::pg_catalog.regclass
        JOIN pg_catalog.pg_depend d ON d.objid = r.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
), trees (tree) AS (
    SELECT prosqlbody::pg_catalog.text FROM pg_catalog.pg_proc
    WHERE oid = pg_catalog.to_regprocedure(%(function)s)::pg_catalog.oid
    UNION ALL SELECT ev_action::pg_catalog.text FROM pg_catalog.pg_rewrite WHERE oid IN (SELECT rule FROM used)
), called (oid) AS (
    SELECT (found)[1]::pg_catalog.oid FROM trees, pg_catalog.regexp_matches(
        tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)', 'g') found
    UNION SELECT COALESCE(o.oprcode::pg_catalog.oid, u.oid) FROM used u LEFT JOIN pg_catalog.pg_operator o
        ON o.oid = u.oid AND u.class = 'pg_catalog.pg_operator'::pg_catalog.regclass
    WHERE o.oid IS NOT NULL OR u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass
    UNION SELECT oid FROM pg_catalog.pg_proc WHERE proname = ANY (%(names)s)
)
SELECT n.nspname, p.proname, p.provolatile <> 'v', n.nspname = 'pg_catalog' OR EXISTS (
    SELECT FROM pg_catalog.pg_depend e WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
    AND e.objid = p.oid AND e.deptype = 'e')
FROM called JOIN pg_catalog.pg_proc p USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname NOT LIKE 'pg\_temp%%' ORDER BY 1, 2
"""
OF_FUNCTION = (
    "d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass "
    "AND d.objid = pg_catalog.to_regprocedure(%(function)s)::pg_catalog.oid"
)
"""Of what a function with a body of SQL is made."""
OF_NEW = "d.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid"
"""Of what all is made that was defined in this transaction."""


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

    Raises:
        InputError: it calls what may do more than give a value.
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
