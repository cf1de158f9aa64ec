"""Which functions statements may call: those of PostgreSQL's own that change nothing, and those that a person allows.

A function of somebody's own may say that it changes nothing, and do it all the same; so it must be allowed by name,
whether it is called by its name, by an operator, a cast, a column that is none, or by a view. Functions of extensions,
which the server's owner installed, are believed if they say that they change nothing. What tables themselves call
(defaults, conditions, triggers, policies) is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.postgresql.parsing import Name, called_in

_HARMLESS = frozenset(
    {"random", "random_normal", "gen_random_uuid", "clock_timestamp", "timeofday", "nextval", "currval", "lastval"}
)
"""Volatile, but all that they do is to give another value each time."""
_LOOKING = re.compile(r"(table|schema|database|cursor)_to_xml")
"""They look at tables that a statement does not name."""
_CLOCKS = frozenset(
    {"now", "transaction_timestamp", "statement_timestamp", "age", "txid_current", "pg_current_xact_id"}
)
_IS_PURE = """p.provolatile <> 'v' AND (n.nspname = 'pg_catalog' OR EXISTS (SELECT FROM pg_catalog.pg_depend e
    WHERE e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND e.objid = p.oid AND e.deptype = 'e'))"""
_NAMED = f"""
SELECT n.nspname, pg_catalog.bool_and({_IS_PURE}) FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = %s AND n.nspname NOT LIKE 'pg\\_temp%%' AND (%s = '' OR n.nspname = %s) GROUP BY 1
"""
_USED = """
WITH RECURSIVE used (class, oid, rule) AS (
    SELECT refclassid, refobjid, 0::pg_catalog.oid FROM pg_catalog.pg_depend d WHERE {which}
    UNION SELECT d.refclassid, d.refobjid, r.oid FROM used u JOIN pg_catalog.pg_rewrite r ON r.ev_class = u.oid
        AND u.class = 'pg_catalog.pg_class'::pg_catalog.regclass
        JOIN pg_catalog.pg_depend d ON d.objid = r.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
)
"""
_CALLED = f"""
SELECT DISTINCT n.nspname, p.proname, p.provolatile <> 'v', {_IS_PURE} FROM used u
LEFT JOIN pg_catalog.pg_operator o ON o.oid = u.oid AND u.class = 'pg_catalog.pg_operator'::pg_catalog.regclass
JOIN pg_catalog.pg_proc p
    ON p.oid = o.oprcode OR (p.oid = u.oid AND u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass)
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname <> 'pg_catalog'
"""
_RULES = "SELECT DISTINCT pg_catalog.pg_get_ruledef(rule) FROM used WHERE rule <> 0"


@dataclass(frozen=True, slots=True)
class Callees:
    """What is called, as the server resolves it.

    Attributes:
        own: functions that are none of PostgreSQL's, `schema.name`, with whether they say that they change nothing,
            and whether that is believed.
        named: functions in the rules of views and tables that are looked at, PostgreSQL's among them.
    """

    own: tuple[tuple[str, bool, bool], ...] = ()
    named: frozenset[Name] = frozenset()

    @property
    def are_settled(self) -> bool:
        """Whether they give the same the next time."""
        return all(is_pure for _, is_pure, _ in self.own) and are_settled(self.named)


def callees_of(connection: Any, function: str) -> Callees:
    """What a function with a body of SQL calls."""
    which = (
        "d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass "
        "AND d.objid = pg_catalog.to_regprocedure(%(function)s)::pg_catalog.oid"
    )
    return _callees(connection, which, {"function": function})


def callees_of_new(connection: Any) -> Callees:
    """What all that was defined in this transaction calls."""
    return _callees(connection, "d.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid", {})


def _callees(connection: Any, which: str, values: dict[str, str]) -> Callees:
    used = _USED.format(which=which)
    own = connection.execute(used + _CALLED, values).fetchall()
    rules = connection.execute(used + _RULES, values).fetchall()
    return Callees(
        tuple((f"{schema}.{name}", is_pure, is_believed) for schema, name, is_pure, is_believed in own),
        frozenset(name for (text,) in rules for name in called_in(text)),
    )


def require_allowed(connection: Any, found: Callees, allowed: Collection[str], number: int) -> None:
    """Check what a statement calls, by whatever notation.

    Raises:
        InputError: one may do more than give a value.
    """
    for name, _, is_believed in found.own:
        if not is_believed and not name.startswith("pg_temp") and name not in allowed:
            raise _refused(number, name)
    require_harmless(connection, found.named, allowed, number)


def require_harmless(connection: Any, called: Iterable[Name], allowed: Collection[str], number: int) -> None:
    """Check the functions that a statement calls by their names.

    Raises:
        InputError: one may do more than give a value.
    """
    for schema, name in called:
        for place, is_pure in connection.execute(_NAMED, (name, schema, schema)).fetchall():
            is_own = place == "pg_catalog"
            is_harmless = (is_pure and not (is_own and _LOOKING.match(name))) or (is_own and name in _HARMLESS)
            if not is_harmless and f"{place}.{name}" not in allowed:
                raise _refused(number, f"{place}.{name}")


def _refused(number: int, name: str) -> InputError:
    return InputError(
        f"statement {number}: is refused: the function {name} may do more than give a value; "
        "`functions` in the settings allows it"
    )


def are_settled(called: Iterable[Name]) -> bool:
    """Whether functions give the same the next time."""
    return not {name for _, name in called} & (_HARMLESS | _CLOCKS)
