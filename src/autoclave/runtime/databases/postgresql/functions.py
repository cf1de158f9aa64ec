"""Which functions statements may call: those of PostgreSQL's own that change nothing, and those that a person allows.

A function of somebody's own may say that it changes nothing, and do it all the same; so it must be allowed by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.postgresql.parsing import Name

_HARMLESS = frozenset(
    {"random", "random_normal", "gen_random_uuid", "clock_timestamp", "timeofday", "nextval", "currval", "lastval"}
)
"""Volatile, but all that they do is to give another value each time."""
_CLOCKS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "age", "txid_current", "pg_current_xact_id"}
)


def require_harmless(connection: Any, called: Iterable[Name], allowed: Collection[str], number: int) -> None:
    """Check the functions that a statement calls.

    Raises:
        InputError: one may do more than give a value.
    """
    for schema, name in called:
        found = connection.execute(
            "SELECT n.nspname, bool_and(p.provolatile <> 'v') FROM pg_catalog.pg_proc p "
            "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.proname = %s AND n.nspname "
            "NOT LIKE 'pg\\_temp%%' AND (%s = '' OR n.nspname = %s) GROUP BY 1",
            (name, schema, schema),
        ).fetchall()
        for place, is_pure in found:
            if place == "pg_catalog" and (is_pure or name in _HARMLESS):
                continue
            if f"{place}.{name}" not in allowed:
                raise InputError(
                    f"statement {number}: is refused: the function {place}.{name} may do more than give a value; "
                    "`functions` in the settings allows it"
                )


def are_settled(called: Iterable[Name]) -> bool:
    """Whether functions give the same the next time."""
    return not {name for _, name in called} & (_HARMLESS | _CLOCKS)
