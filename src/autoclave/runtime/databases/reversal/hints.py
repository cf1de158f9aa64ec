"""Values that decide what statements do: those that they compare columns with, bring, or set. Pure.

Generated rows that held none of them would make a test of `WHERE kind = 'book'` say nothing. What cannot be read is
passed over: hints make a test sharper, and are never what it rests on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.reversal.ground import Shape, Value
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.quiet import quieten

_COMPARED = re.compile(
    r"""(?P<column>\w+)["`\]]?\)?(?:::[\w ]+)?\)?\s*
    (?:=\s*ANY|<>|!=|<=|>=|=|<|>|~~|\bIS\b|\bLIKE\b|\bIN\b|\bBETWEEN\b)\s*
    (?P<values>(?:[\s(,\[]|ARRAY|AND\b|::[\w ]+|[\])]|'(?:[^']|'')*'|-?\d+(?:\.\d+)?)+)""",
    re.IGNORECASE | re.VERBOSE,
)
_LITERAL = re.compile(r"'((?:[^']|'')*)'|(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Template:
    """A part of a row of some tables: values by column, of which any may be taken."""

    values: Mapping[str, tuple[Value, ...]]
    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class Hints:
    """What statements and a schema say of values.

    Attributes:
        templates: rows, or parts of them, which statements look for, bring or leave behind.
        of_schema: values by column in conditions of the schema.
        brought: rows that an action brings, by table; where they are there already, it fails or does something else.
        set_to: what an action sets columns to, by column.
        tables: that statements name.
    """

    templates: tuple[Template, ...] = ()
    of_schema: Mapping[str, tuple[Value, ...]] = field(default_factory=dict[str, tuple[Value, ...]])
    brought: tuple[tuple[str, Mapping[str, Value]], ...] = ()
    set_to: Mapping[str, frozenset[Value]] = field(default_factory=dict[str, frozenset[Value]])
    tables: frozenset[str] = frozenset()


def hints_of(act: Sql, undo: Sql, shape: Shape) -> Hints:
    """What can be read in an action, in its undo and in a schema."""
    own = list(_trees(act, shape.dialect))
    templates: list[Template] = []
    brought: list[tuple[str, Mapping[str, Value]]] = []
    set_to: dict[str, set[Value]] = {}
    named = frozenset[str]()
    for tree, values in own:
        rows = list(_inserted(tree, values, shape.schema))
        brought += rows
        for column, value in _set(tree, values):
            set_to.setdefault(column, set()).add(value)
    for tree, values in (*own, *_trees(undo, shape.dialect)):
        templates += [
            Template({name: (value,) for name, value in row.items()}, frozenset({table}))
            for table, row in _inserted(tree, values, shape.schema)
        ]
        compared, assigned = _gathered(_compared(tree, values)), _gathered(_set(tree, values))
        tables = _named(tree, shape.schema)
        named |= tables
        templates += [Template(each, tables) for each in (compared, assigned) if each]
    of_schema: dict[str, tuple[Value, ...]] = {}
    for text in shape.texts:
        for column, value in _compared_in_text(text):
            of_schema[column] = (*of_schema.get(column, ()), value)
    all_set = {name: frozenset(each) for name, each in set_to.items()}
    return Hints(tuple(templates), of_schema, tuple(brought), all_set, named)


def _trees(operation: Sql, dialect: str) -> Iterator[tuple[Any, list[Value]]]:
    import sqlglot
    from sqlglot.errors import SqlglotError

    quieten("sqlglot")
    for number, text in enumerate(operation.statements):
        try:
            for tree in sqlglot.parse(text, dialect=dialect):
                if tree is not None:
                    yield tree, list(operation.values_of(number))
        except (SqlglotError, ValueError, RecursionError):
            continue


def _named(tree: Any, schema: Schema) -> frozenset[str]:
    """Tables that a statement names; all, if one of them is a view."""
    from sqlglot import expressions as exp

    names = {table.name.lower() for table in tree.find_all(exp.Table)}
    found = {place for place in schema.tables if name_of(place).lower() in names}
    return frozenset(schema.tables if any(schema.tables[place].is_view for place in found) else found)


def _gathered(pairs: Iterable[tuple[str, Value]]) -> dict[str, tuple[Value, ...]]:
    found: dict[str, tuple[Value, ...]] = {}
    for column, value in pairs:
        found[column] = (*found.get(column, ()), value)
    return found


def _compared(tree: Any, given: Sequence[Value]) -> Iterator[tuple[str, Value]]:
    """Columns with the values that stand beside them in comparisons, in whatever expressions."""
    from sqlglot import expressions as exp

    kinds = (
        exp.EQ,
        exp.NEQ,
        exp.GT,
        exp.GTE,
        exp.LT,
        exp.LTE,
        exp.In,
        exp.Between,
        exp.Like,
        exp.ILike,
        exp.Is,
        exp.Case,
    )
    between = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
    numbers = _numbered(tree)
    assigned = {id(each) for update in tree.find_all(exp.Update) for each in update.expressions}
    for node in tree.find_all(*kinds):
        if id(node) in assigned:
            continue
        columns = [column.name.lower() for column in node.find_all(exp.Column)]
        for value in _literals(node, given, numbers):
            plain = value.replace("%", "x").replace("_", "y") if isinstance(value, str) else value
            likes = isinstance(node, exp.Like | exp.ILike)
            for each in _around(plain if likes else value, isinstance(node, between)):
                yield from ((column, each) for column in columns)


def _around(value: Value, is_border: bool) -> tuple[Value, ...]:
    if is_border and isinstance(value, int | float) and not isinstance(value, bool):
        return (value, value + 1, value - 1)
    return (value,)


def _set(tree: Any, given: Sequence[Value]) -> Iterator[tuple[str, Value]]:
    from sqlglot import expressions as exp

    numbers = _numbered(tree)
    for update in tree.find_all(exp.Update, exp.OnConflict):
        for each in update.expressions:
            if isinstance(each, exp.EQ) and isinstance(each.this, exp.Column | exp.Identifier):
                value = each.expression.this if isinstance(each.expression, exp.Neg) else each.expression
                if isinstance(value, exp.Literal | exp.Boolean | exp.Placeholder | exp.Parameter):
                    yield from ((each.this.name.lower(), found) for found in _literals(value, given, numbers))


def _inserted(tree: Any, given: Sequence[Value], schema: Schema) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Rows of VALUES, as far as they are literals."""
    from sqlglot import expressions as exp

    numbers = _numbered(tree)
    for insert in tree.find_all(exp.Insert):
        target = insert.this
        table = target.find(exp.Table) if target is not None else None
        values = insert.expression
        if table is None or not isinstance(values, exp.Values):
            continue
        place = next((each for each in schema.tables if name_of(each).lower() == table.name.lower()), "")
        if isinstance(target, exp.Schema):
            names = [each.name.lower() for each in target.expressions]
        else:
            names = [each.name.lower() for each in schema.tables[place].columns] if place else []
        for row in values.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            told = zip(names, (list(_literals(cell, given, numbers)) for cell in cells), strict=False)
            if place and (known := {name: found[0] for name, found in told if len(found) == 1}):
                yield place, known


def _numbered(tree: Any) -> dict[int, int]:
    """The numbers of `?` in a statement, by what they are."""
    from sqlglot import expressions as exp

    marks = [each for each in tree.dfs() if isinstance(each, exp.Placeholder)]
    return {id(each): number for number, each in enumerate(marks)}


def _literals(node: Any, given: Sequence[Value], numbers: Mapping[int, int]) -> Iterator[Value]:
    from sqlglot import expressions as exp

    for each in node.find_all(exp.Literal, exp.Boolean, exp.Placeholder, exp.Parameter):
        if isinstance(each, exp.Literal):
            value = each.this if each.is_string else _number(each.this)
            is_negative = isinstance(each.parent, exp.Neg) and isinstance(value, int | float)
            yield -value if is_negative and not isinstance(value, str) else value
        elif isinstance(each, exp.Boolean):
            yield bool(each.this)
        else:
            text = f"{each.this}"
            place = int(text) - 1 if text.isdigit() else numbers.get(id(each), -1)
            if 0 <= place < len(given):
                yield given[place]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _compared_in_text(text: str) -> Iterator[tuple[str, Value]]:
    for found in _COMPARED.finditer(text):
        for word, number in _LITERAL.findall(found["values"]):
            yield found["column"].lower(), _number(number) if number else word.replace("''", "'")
