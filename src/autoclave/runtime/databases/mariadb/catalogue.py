"""The tables of some schemas of a MariaDB server: what they are made of, and what changes with them. Reads only."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.mariadb.connection import rows
from autoclave.runtime.databases.mariadb.values import ColumnFacts, Value, key_in_words, quoted
from autoclave.runtime.databases.places import place_of
from autoclave.runtime.databases.schema import Column, Reference, Table

_FOLLOWED = ("CASCADE", "SET NULL", "SET DEFAULT")


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key. `deleting`, `updating`: the words that say what it does then."""

    name: str
    child: str
    columns: tuple[str, ...]
    parent: str
    target: tuple[str, ...]
    deleting: str
    updating: str

    @property
    def carries(self) -> bool:
        """Whether a change of the parent changes the child."""
        return self.deleting in _FOLLOWED or self.updating in _FOLLOWED


@dataclass(frozen=True)
class TableFacts:
    """What is known of one table or view."""

    schema: str
    name: str
    kind: str
    engine: str
    columns: tuple[ColumnFacts, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    triggers: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return place_of(self.schema, self.name)

    @property
    def quoted(self) -> str:
        return quoted(self.schema, self.name)

    @property
    def is_view(self) -> bool:
        return self.kind != "BASE TABLE" and self.kind != "SYSTEM VERSIONED"

    @cached_property
    def stored(self) -> tuple[ColumnFacts, ...]:
        """Columns that an image holds."""
        return tuple(each for each in self.columns if not each.is_virtual)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where the value of a column stands in an image."""
        return {each.name: number for number, each in enumerate(self.stored)}

    @cached_property
    def layout(self) -> str:
        """Of what images of its rows are made."""
        columns = [
            [each.name, each.whole_kind, each.charset, each.collation, each.can_be_null, each.generation]
            for each in self.columns
        ]
        return json.dumps([columns, self.key], separators=(",", ":"))

    def reading(self, row: str = "") -> str:
        """SQL for the values of an image."""
        return ", ".join(each.reading(row) for each in self.stored)

    def image(self, row: Sequence[Value]) -> Image:
        values = list(row)
        key = [values[self.places[name]] for name in self.key]
        return (key_in_words(key) if key else "", values)

    def literals(self, image: Image, columns: Iterable[str]) -> tuple[str, ...]:
        """SQL for some values of a row."""
        return tuple(self.stored[self.places[name]].literal(image[1][self.places[name]]) for name in columns)

    @property
    def fills_by_clock(self) -> bool:
        """Whether some column gets a value by itself that is another each time."""
        return any(
            "(" in each.default or "on update" in each.extra.lower() for each in self.columns if not each.is_generated
        )

    @property
    def counter(self) -> str:
        """The column with AUTO_INCREMENT; empty: none."""
        return next((each.name for each in self.columns if each.counts_up), "")

    def as_table(self) -> Table:
        columns = tuple(
            Column(
                each.name,
                each.kind if each.kind in ("enum", "set") else each.whole_kind,
                each.can_be_null,
                each.is_generated or each.counts_up,
            )
            for each in self.columns
        )
        references = tuple(Reference(each.columns, each.parent, each.target) for each in self.foreign_keys)
        return Table(self.name, columns, self.key, self.unique, references, self.is_view)


@dataclass(frozen=True)
class Catalogue:
    """Tables and views by `SCHEMA/NAME`, and foreign keys that refer to them, also those of other schemas."""

    tables: dict[str, TableFacts] = field(default_factory=dict[str, TableFacts])
    children: dict[str, list[ForeignKey]] = field(default_factory=dict[str, list[ForeignKey]])

    def with_cascades(self, places: Iterable[str]) -> set[str]:
        """Tables, and all those that change when they do."""
        found, waiting = set[str](), list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += [each.child for each in self.children.get(place, ()) if each.carries]
        return found


def catalogue_of(connection: Any, schemas: Collection[str]) -> Catalogue:
    """What is in some schemas, as far as the user may see it."""
    wanted = "(" + ", ".join(f"'{each.replace(chr(39), chr(39) * 2)}'" for each in schemas) + ")"
    columns: dict[str, list[ColumnFacts]] = {}
    for schema, name, *facts in rows(connection, _COLUMNS.format(wanted)):
        column, kind, whole, null, charset, collation, default, extra, generation = facts
        columns.setdefault(place_of(schema, name), []).append(
            ColumnFacts(
                column,
                kind,
                whole,
                null == "YES",
                charset or "",
                collation or "",
                default or "",
                extra or "",
                generation or "",
            )
        )
    keys, unique = _keys(connection, wanted)
    foreign_keys = list(_foreign_keys(connection, wanted))
    triggers: dict[str, list[str]] = {}
    for schema, table, name in rows(connection, _TRIGGERS.format(wanted)):
        triggers.setdefault(place_of(schema, table), []).append(name)
    tables: dict[str, TableFacts] = {}
    for schema, name, kind, engine in rows(connection, _TABLES.format(wanted)):
        place = place_of(schema, name)
        tables[place] = TableFacts(
            schema,
            name,
            kind,
            engine or "",
            tuple(columns.get(place, ())),
            keys.get(place, ()),
            tuple(unique.get(place, ())),
            tuple(each for each in foreign_keys if each.child == place),
            tuple(triggers.get(place, ())),
        )
    children: dict[str, list[ForeignKey]] = {}
    known = {each.child for each in foreign_keys}
    for each in [*foreign_keys, *(key for key in _elsewhere(connection) if key.child not in known)]:
        children.setdefault(each.parent, []).append(each)
    return Catalogue(tables, children)


def _keys(connection: Any, wanted: str) -> tuple[dict[str, tuple[str, ...]], dict[str, list[tuple[str, ...]]]]:
    """Primary keys, and other columns that are unique together."""
    indexes: dict[tuple[str, str], list[str]] = {}
    for schema, name, index, column in rows(connection, _INDEXES.format(wanted)):
        indexes.setdefault((place_of(schema, name), index), []).append(column)
    keys = {place: tuple(each) for (place, index), each in indexes.items() if index == "PRIMARY"}
    unique: dict[str, list[tuple[str, ...]]] = {}
    for (place, index), each in indexes.items():
        if index != "PRIMARY":
            unique.setdefault(place, []).append(tuple(each))
    return keys, unique


def _foreign_keys(connection: Any, wanted: str) -> Iterator[ForeignKey]:
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    rules: dict[tuple[str, str, str], tuple[str, str]] = {}
    for name, own, table, column, other, referred, target, deleting, updating in rows(
        connection, _REFERENCES.format(wanted)
    ):
        place = (name, place_of(own, table), place_of(other, referred))
        found.setdefault(place, []).append((column, target))
        rules[place] = (deleting, updating)
    for place, pairs in found.items():
        name, child, parent = place
        yield ForeignKey(
            name, child, tuple(one for one, _ in pairs), parent, tuple(other for _, other in pairs), *rules[place]
        )


def _elsewhere(connection: Any) -> Iterator[ForeignKey]:
    """Foreign keys of all schemas, also of those that the user does not see; which columns they have is left out."""
    for name, own, table, other, referred, rules in rows(connection, _ALL_REFERENCES):
        does = "CASCADE" if int(rules) & _CARRYING else "RESTRICT"
        yield ForeignKey(name, place_of(own, table), (), place_of(other, referred), (), does, does)


_CARRYING = 0b1111


def _in_plain(column: str, part: int) -> str:
    """SQL for the schema (1) or table (-1) of a name as InnoDB spells it, like a file: `par@002dent` is `par-ent`."""
    spelt = f"SUBSTRING_INDEX({column}, '/', {part})"
    return f"CONVERT(CONVERT(CONVERT({spelt} USING binary) USING filename) USING utf8mb4)"


_ALL_REFERENCES = (
    f"SELECT id, {_in_plain('for_name', 1)}, {_in_plain('for_name', -1)}, {_in_plain('ref_name', 1)}, "
    f"{_in_plain('ref_name', -1)}, type FROM information_schema.innodb_sys_foreign"
)
_TABLES = (
    "SELECT table_schema, table_name, table_type, engine FROM information_schema.tables "
    "WHERE table_schema IN {0} ORDER BY 1, 2"
)
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, character_set_name, "
    "collation_name, column_default, extra, generation_expression FROM information_schema.columns "
    "WHERE table_schema IN {0} ORDER BY 1, 2, ordinal_position"
)
_INDEXES = (
    "SELECT table_schema, table_name, index_name, column_name FROM information_schema.statistics "
    "WHERE table_schema IN {0} AND non_unique = 0 ORDER BY 1, 2, 3, seq_in_index"
)
_REFERENCES = (
    "SELECT k.constraint_name, k.table_schema, k.table_name, k.column_name, "
    "k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name, r.delete_rule, "
    "r.update_rule FROM information_schema.key_column_usage k JOIN information_schema.referential_constraints r ON "
    "r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = "
    "k.table_name WHERE (k.referenced_table_schema IN {0} OR k.table_schema IN {0}) "
    "AND k.referenced_table_name IS NOT NULL ORDER BY 1, 2, 3, k.ordinal_position"
)
_TRIGGERS = (
    "SELECT event_object_schema, event_object_table, trigger_name FROM information_schema.triggers "
    "WHERE event_object_schema IN {0} ORDER BY 1, 2"
)
