"""Rows drawn at random that look like those of a schema, and like those that statements are about. Pure.

What is drawn fits types, keys, unique columns and references; conditions of the schema may still refuse it, so whoever
inserts rows draws again. Rows are small on purpose: values that repeat, differ by one, by case or by a space at the end
tell statements apart that do nearly the same.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.reversal.ground import Shape, Value, parents_first
from autoclave.runtime.databases.reversal.hints import Hints, Template
from autoclave.runtime.databases.schema import Column, Reference, Table

Row = dict[str, Value]
_Values = Mapping[str, tuple[Value, ...]]
_TRIES = 8
_NEGATIVE, _KEPT = 0.1, 0.6
_NULLS, _REFERENCE_NULLS, _TEMPLATES, _SKIPPED, _HINTED = 0.12, 0.15, 0.5, 0.25, 0.35
_WORDS = ("a", "A", "b", "ab", "zz", "é", "", " x ", "it's", "100%", "Mixed Case", "b ", "0", "10", "word " * 12)
_FAMILIES = (
    ("boolean", r"bool|tinyint\(1\)"),
    ("interval", r"interval"),
    ("range", r"range"),
    ("serial", r"serial"),
    ("integer", r"int"),
    ("text", r"char|clob|text|name|citext"),
    ("real", r"real|floa|doub"),
    ("number", r"num|deci|money"),
    ("timestamp", r"timestamp|datetime"),
    ("date", r"date"),
    ("time", r"time"),
    ("uuid", r"uuid"),
    ("json", r"json"),
    ("bytes", r"blob|bytea|binary"),
    ("address", r"inet|cidr"),
    ("any", r"^$|any"),
)
_POOLS: dict[str, tuple[Value, ...]] = {
    "boolean": (True, False),
    "interval": ("1 day", "2 hours", "-1 month"),
    "range": ("empty", "[1,5)", "[2,3)"),
    "integer": (0, 1, 2, 3, 4, 5, 7, 10, 12, 100, -1, -2, -7, -50),
    "real": (0.0, 1.0, -1.0, 0.5, 2.5, 10.25, 0.1, 19.99, 200.0, 3.0),
    "number": (0, 1, -1, 2, 3, 10, 7.5, 10.25, 19.99, 200, 0.1),
    "timestamp": ("2020-01-01 00:00:00", "2021-06-15 12:30:45", "1999-12-31 23:59:59", "2024-02-29 08:00:00"),
    "date": ("2020-01-01", "2021-06-15", "1999-12-31", "2024-02-29"),
    "time": ("00:00:00", "12:30:45", "23:59:59"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    "json": ("{}", "[]", '{"a": 1}', '{"a": 2, "b": null}', "null"),
    "bytes": (b"", b"\x00", b"\x00\xff", b"abc"),
    "address": ("127.0.0.1", "10.0.0.0"),
    "other": ("", "0", "1", "{}", "{1,2}", "a", "(1,2)", "1 day"),
    "any": (0, 1, 1.5, "a", "1", b"\x00"),
}
_EXTREMES: dict[str, tuple[Value, ...]] = {
    "integer": (2**31 - 1, -(2**31), 2**15 - 1, 1000),
    "real": (1e15, -1e-3, 1 / 3),
    "number": (99999, 0.01),
    "text": ("x" * 300, "\t", "ß", "I", "ı"),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one world is like.

    Attributes:
        seed: the same seed, the same rows.
        num_rows: in each table, about.
        avoids: 0: rows that an action brings may be there before; 1: they are not; 2: nor are rows that statements name
            by their keys, but for those that others refer to.
        is_extreme: whether values at borders of their types are among them.
    """

    seed: int
    num_rows: int = 10
    avoids: int = 1
    is_extreme: bool = False


class Draw:
    """Rows of one world. What was inserted is told to it (`accept`), since other rows refer to it."""

    def __init__(self, shape: Shape, hints: Hints, recipe: Recipe) -> None:
        self._shape, self._hints, self.recipe = shape, hints, recipe
        self._random = random.Random(recipe.seed)
        self._rows: dict[str, list[Row]] = {}
        self._taken: dict[tuple[str, tuple[str, ...]], set[tuple[Value, ...]]] = {}
        self._pools: dict[tuple[str, str], tuple[tuple[Value, ...], tuple[Value, ...]]] = {}
        self._templates = {place: self._fitting(place) for place in shape.schema.tables}
        self._needed: dict[str, list[_Values]] = {place: [] for place in shape.schema.tables}
        self._num_drawn: Counter[str] = Counter()
        for place in reversed(parents_first(shape.schema, shape.schema.tables.keys())):
            self._have_parents_of(place)

    def _have_parents_of(self, place: str) -> None:
        """Have rows that are hinted to be referred to."""
        table = self._shape.schema.tables[place]
        for reference in table.references:
            parent = self._shape.schema.tables.get(reference.table)
            if parent is None:
                continue
            names = dict(zip(reference.columns, _target(parent, reference), strict=True))
            for each in (*self._templates[place], *self._needed[place]):
                wanted = {names[name].lower(): each[name.lower()] for name in names if name.lower() in each}
                for one in (wanted, {name: tuple(map(_other_case, values)) for name, values in wanted.items()}):
                    if one and one not in self._needed[reference.table]:
                        self._needed[reference.table].append(one)

    def _fitting(self, place: str) -> list[_Values]:
        columns = {column.name.lower() for column in self._shape.schema.tables[place].columns}
        found = [_cut(each, columns) for each in self._hints.templates if place in each.tables]
        return [each for each in found if each]

    def row(self, place: str) -> Row | None:
        """A row that may be inserted; None if none was found."""
        table = self._shape.schema.tables[place]
        number = self._num_drawn[place]
        self._num_drawn[place] += 1
        for attempt in range(_TRIES):
            row = self._row(place, table, self._template(place, number if attempt < 2 else -1, attempt > _TRIES // 2))
            if row is not None and not any(self._is_taken(place, key, row) for key in _unique(table)):
                return row
        return None

    def accept(self, place: str, row: Row) -> None:
        """A row was inserted."""
        self._rows.setdefault(place, []).append(row)
        for key in _unique(self._shape.schema.tables[place]):
            self._taken.setdefault((place, key), set()).add(self._as_compared(place, key, _part(row, key)))

    def late(self, order: Sequence[str]) -> Iterator[tuple[str, Row, Row]]:
        """References to tables that were filled later: table, key, and what to set."""
        for number, place in enumerate(order):
            table = self._shape.schema.tables[place]
            for reference in table.references:
                if reference.table not in order[number + 1 :] or not table.key:
                    continue
                for row in self._rows.get(place, ()):
                    found = self._referred(place, table, reference, {}, {})
                    if found and self._random.random() > _REFERENCE_NULLS:
                        yield place, {name: row.get(name) for name in table.key}, found

    def _is_taken(self, place: str, key: tuple[str, ...], row: Row) -> bool:
        values = self._as_compared(place, key, _part(row, key))
        if None in values:
            return False
        if values in self._taken.get((place, key), ()):
            return True
        if not self.recipe.avoids:
            return False
        names = [name.lower() for name in key]
        set_to = self._hints.set_to.get(names[0], ())
        if len(key) == 1 and values in {self._as_compared(place, key, (value,)) for value in set_to}:
            return True
        if self.recipe.avoids == 2 and any(self._holds(each, place, key, values) for each in self._templates[place]):
            return not any(self._holds(each, place, key, values) for each in self._needed[place])
        return any(
            table == place and values == self._as_compared(place, key, tuple(brought.get(name) for name in names))
            for table, brought in self._hints.brought
        )

    def _holds(self, template: _Values, place: str, key: tuple[str, ...], values: tuple[Value, ...]) -> bool:
        """Whether a part of a row has such values in the columns of a key."""
        return all(
            value in {self._as_compared(place, (name,), (each,))[0] for each in template.get(name.lower(), ())}
            for name, value in zip(key, values, strict=True)
        )

    def _as_compared(self, place: str, key: tuple[str, ...], values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Values such that those are the same which the database takes for the same."""
        folded = self._shape.folded.get(place, ())
        return tuple(
            value.rstrip().casefold() if name in folded and isinstance(value, str) else value
            for name, value in zip(key, values, strict=True)
        )

    # --- One row ----------------------------------------------------------------------------------------------------

    def _row(self, place: str, table: Table, template: Mapping[str, Value]) -> Row | None:
        row: Row = {}
        for reference in table.references:
            found = self._referred(place, table, reference, row, template)
            if found is None:
                return None
            row.update(found)
        for column in table.columns:
            if column.name not in row and not column.fills_itself:
                row[column.name] = self._value(place, table, column, template)
        for reference in table.references:  # to itself, as the first row of a table must
            if reference.table == place and self._has_to_be_itself(table, reference):
                row.update(zip(reference.columns, _part(row, _target(table, reference)), strict=True))
        return row

    def _template(self, place: str, number: int, is_late: bool) -> dict[str, Value]:
        """A part of a row that statements are about: each in turn, then any, maybe with a value or two left out."""
        found = [*self._needed[place], *(self._templates[place] if self.recipe.avoids < 2 else ())]
        if 0 <= number < len(found):
            keys = {name.lower() for key in _unique(self._shape.schema.tables[place]) for name in key}
            return {
                name: self._random.choice(values)
                for name, values in found[number].items()
                if name in keys or self._random.random() < _KEPT
            }
        if not found or is_late or self._random.random() > _TEMPLATES:
            return {}
        chosen = self._random.choice(found)
        skipped = _SKIPPED if self._random.random() < 0.5 else 0.0
        row: dict[str, Value] = {}
        for name, values in chosen.items():
            value = self._random.choice(values)
            if self._random.random() >= skipped:
                row[name] = value
            elif near := _near(value):
                row[name] = self._random.choice(near)
        return row

    def _referred(
        self, place: str, table: Table, reference: Reference, row: Row, template: Mapping[str, Value]
    ) -> Row | None:
        """Values for the columns of a reference; empty if they are left to be drawn, None if there are none."""
        columns = {column.name: column for column in table.columns}
        nullable = [name for name in reference.columns if columns[name].can_be_null and name not in row]
        is_template = any(template.get(name.lower()) is not None for name in reference.columns)
        if nullable and not is_template and self._random.random() < _REFERENCE_NULLS:
            return dict.fromkeys(nullable, None)
        target = _target(self._shape.schema.tables.get(reference.table), reference)
        parents = [_part(each, target) for each in self._rows.get(reference.table, ())]
        fixed = {**row, **{n: template[n.lower()] for n in reference.columns if template.get(n.lower()) is not None}}
        for wanted in (fixed, row):
            fitting = [
                values
                for values in parents
                if None not in values
                and all(wanted.get(name, value) == value for name, value in zip(reference.columns, values, strict=True))
            ]
            if fitting:
                return dict(zip(reference.columns, self._random.choice(fitting), strict=True))
        if nullable:
            return dict.fromkeys(nullable, None)
        return {} if reference.table == place else None

    def _has_to_be_itself(self, table: Table, reference: Reference) -> bool:
        columns = {column.name: column for column in table.columns}
        own = f"{table.name}"
        is_first = not any(rows for place, rows in self._rows.items() if name_of(place) == own)
        return is_first and not any(columns[name].can_be_null for name in reference.columns)

    def _value(self, place: str, table: Table, column: Column, template: Mapping[str, Value]) -> Value:
        given = template.get(column.name.lower())
        if given is not None:
            return fitted(given, column.kind)
        if column.can_be_null and self._random.random() < _NULLS:
            return None
        hinted, plain = self._pool(place, column)
        if hinted and self._random.random() < _HINTED:
            return self._random.choice(hinted)
        if any(column.name in key for key in _unique(table)):
            return self._fresh(column, plain)
        return self._random.choice(plain)

    def _fresh(self, column: Column, plain: tuple[Value, ...]) -> Value:
        """A value that is seldom there already."""
        kind = family(column.kind)
        if kind in ("integer", "serial", "number", "real"):
            return self._random.randint(1, 40) if self._random.random() > _NEGATIVE else -self._random.randint(0, 9)
        if kind == "text":
            return fitted(self._random.choice("abcxyzAB") + self._random.choice("aeiou ") * 2, column.kind)
        if kind == "uuid":
            return f"00000000-0000-4000-8000-{self._random.randrange(16**12):012x}"
        if kind in ("date", "timestamp"):
            return f"20{self._random.randint(10, 29)}-0{self._random.randint(1, 9)}-1{self._random.randint(0, 9)}"
        return self._random.choice(plain)

    def _pool(self, place: str, column: Column) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Values that statements speak of, and others."""
        if (place, column.name) not in self._pools:
            self._pools[place, column.name] = self._made_pool(place, column)
        return self._pools[place, column.name]

    def _made_pool(self, place: str, column: Column) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        kind, name = family(column.kind), column.name.lower()
        if labels := self._shape.labels.get(column.kind):
            return (), labels
        templates = (*self._templates[place], *self._needed[place])
        named = list(dict.fromkeys(value for each in templates for value in each.get(name, ())))
        near = [other for value in named for other in _near(value)]
        of_schema = self._hints.of_schema.get(name, ())
        hinted = [
            fitted(value, column.kind)
            for value in (*named, *named, *near, *of_schema, *of_schema, *of_schema)
            if value is not None
        ]
        plain = _WORDS if kind == "text" else _POOLS["integer" if kind == "serial" else kind]
        more = (*_EXTREMES.get(kind, ()), *plain) if self.recipe.is_extreme else plain
        return tuple(hinted), tuple(fitted(value, column.kind) for value in more)


@cache
def family(kind: str) -> str:
    """The family of a type, by its name."""
    if kind.endswith("]"):
        return "other"
    return next((name for name, words in _FAMILIES if re.search(words, kind.lower())), "other")


def fitted(value: Value, kind: str) -> Value:
    """A value that a column of this type is likelier to take."""
    of = family(kind)
    if of == "text":
        text = value if isinstance(value, str) else f"{value}"
        return text[: _length(kind)]
    if of in ("integer", "serial") and isinstance(value, float) and value.is_integer():
        return int(value)
    if of == "boolean" and value in (0, 1):
        return bool(value)
    return value


@cache
def _length(kind: str) -> int | None:
    found = re.search(r"\((\d+)\)", kind)
    return int(found[1]) if found else None


def _near(value: Value) -> tuple[Value, ...]:
    """Values that are nearly the same."""
    if isinstance(value, bool) or value is None or isinstance(value, bytes):
        return ()
    if isinstance(value, int | float):
        return (value + 1, value - 1)
    near = (value.upper(), value.lower(), value.title(), f"{value} ", f"{value}x", value[:1])
    return tuple(each for each in near if each != value)


def _other_case(value: Value) -> Value:
    return value.swapcase() if isinstance(value, str) else value


def _cut(template: Template, columns: set[str]) -> _Values:
    return {name: values for name, values in template.values.items() if name in columns}


def _unique(table: Table) -> tuple[tuple[str, ...], ...]:
    return (table.key, *table.unique) if table.key else table.unique


def _part(row: Mapping[str, Value], names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in names)


def _target(table: Table | None, reference: Reference) -> tuple[str, ...]:
    return reference.target or (table.key if table else ())
