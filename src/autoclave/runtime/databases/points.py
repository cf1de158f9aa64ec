"""Which rows a statement names by their keys, so that it depends on these rows only and not on the whole table.

A hint for footprints alone, by sqlglot: where it cannot tell, a statement depends on the tables that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from autoclave.runtime.databases.operations import Parameter
from autoclave.runtime.quiet import quieten

_MOST_CHARACTERS = 1_000_000
"""Of a statement that is read: longer ones would take more than some seconds."""


def named_rows(statement: str, values: Sequence[Parameter], dialect: str, key: Sequence[str]) -> list[str] | None:
    """The values of a key of one column in a statement that looks at no other rows; None if it may look at others.

    So are `INSERT ... VALUES` (no rows) and `UPDATE` or `DELETE` of one table `WHERE key = 7` or `IN (7, 8)`, maybe
    with further conditions by AND.
    """
    return _named_rows(statement, tuple(values), dialect, tuple(key))


@lru_cache(maxsize=64)  # an action is planned again when it is run, and run then
def _named_rows(statement: str, values: tuple[Parameter, ...], dialect: str, key: tuple[str, ...]) -> list[str] | None:
    import sqlglot
    from sqlglot import expressions as exp
    from sqlglot.errors import SqlglotError

    quieten("sqlglot")
    if len(statement) > _MOST_CHARACTERS:
        return None
    try:
        (tree,) = sqlglot.parse(statement, dialect=dialect)
    except (SqlglotError, ValueError, RecursionError):
        return None
    if tree is None or tree.find(exp.Select, exp.Subquery, exp.With, exp.Join, exp.From):
        return None
    if any(not each.expressions for each in tree.find_all(exp.In)):  # `x IN table`
        return None
    if isinstance(tree, exp.Insert):
        return [] if isinstance(tree.expression, exp.Values) else None
    if isinstance(tree, exp.Update | exp.Delete) and (where := tree.args.get("where")) and len(key) == 1:
        for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
            if (found := _values(condition, values, key[0])) is not None:
                return found
    return None


def _values(condition: Any, given: Sequence[Parameter], column: str) -> list[str] | None:
    """The values that a condition permits for a column; None if it is no such condition."""
    from sqlglot import expressions as exp

    if isinstance(condition, exp.EQ):
        sides = [condition.left, condition.right]
    elif isinstance(condition, exp.In) and condition.expressions:
        sides = [condition.this, *condition.expressions]
    else:
        return None
    if not isinstance(sides[0], exp.Column):
        sides.reverse()
    if not isinstance(sides[0], exp.Column) or sides[0].name.lower() != column.lower():
        return None
    found = [_text(side, given) for side in sides[1:]]
    return [text for text in found if text is not None] if None not in found else None


def _text(literal: Any, given: Sequence[Parameter]) -> str | None:
    from sqlglot import expressions as exp

    if isinstance(literal, exp.Literal):
        return literal.this
    if isinstance(literal, exp.Neg) and isinstance(literal.this, exp.Literal):
        return f"-{literal.this.this}"
    if isinstance(literal, exp.Parameter) and f"{literal.this}".isdigit() and int(f"{literal.this}") <= len(given):
        return f"{given[int(f'{literal.this}') - 1]}"
    return None
