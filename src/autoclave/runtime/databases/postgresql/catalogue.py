"""The tables of a PostgreSQL database: what they are made of, and how a row is written as text. Reads only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autoclave.runtime.databases.places import place_of
from autoclave.runtime.databases.schema import Column, Reference, Table

SETTINGS = (
    ("datestyle", "ISO, YMD"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("xmloption", "content"),
)
"""With these a row as text says all of it, and can be read again."""
_PLAIN = re.compile(
    r"(smallint|integer|bigint|real|double precision|boolean|text|bytea|uuid|date|json|jsonb"
    r"|numeric(\(.*\))?|character(\(.*\))?|character varying(\(.*\))?|timestamp(\(.*\))? with(out)? time zone)"
)


def is_plain(kind: str) -> bool:
    """Whether a type is one of PostgreSQL's own of which it is known that values come back from their text."""
    return _PLAIN.fullmatch(kind) is not None


TABLES = "rp"
_VIEWS = "vm"
_CASCADING = "cnd"
_UNSETTLED = re.compile(r"\w\(|^(CURRENT_|LOCALTIME)", re.IGNORECASE)


def quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key. `deleting`, `updating`: what it does then (`a` nothing, `r` restrict, `c`, `n`, `d`)."""

    name: str
    child: str
    columns: tuple[str, ...]
    parent: str
    target: tuple[str, ...]
    deleting: str
    updating: str
    is_deferrable: bool


@dataclass(frozen=True)
class TableFacts:
    """What is known of one table. `columns`: name, type, not null, generated, identity, default.
    `triggers`, `rules`: their names and when they fire, those of partitioned tables with their partitions as well.
    `root`: the oid of the table that it is a partition of, however far up; 0 if of none. `level`: how far up that is.
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[tuple[str, str, bool, str, str, str], ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    triggers: tuple[tuple[str, str], ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    inherits: bool = False
    root: int = 0
    level: int = 0

    @property
    def place(self) -> str:
        return place_of(self.schema, self.name)

    @property
    def quoted(self) -> str:
        return quoted(self.schema, self.name)

    @cached_property
    def layout(self) -> str:
        return json.dumps([[column[:5] for column in self.columns], self.key], separators=(",", ":"))

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Columns that can be written: no generated ones."""
        return tuple(column[0] for column in self.columns if not column[3])

    @cached_property
    def is_plain(self) -> bool:
        """Whether that is known of all its types."""
        return all(is_plain(column[1]) for column in self.columns)

    def columns_up_to(self, number: int) -> Sequence[str]:
        """Its first columns."""
        return [column[0] for column in self.columns[:number]]

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """Columns that an update can set: besides, no identities that are always the database's."""
        return tuple(column[0] for column in self.columns if not column[3] and column[4] != "a")

    @cached_property
    def unsettled(self) -> frozenset[str]:
        """Columns whose defaults may be another value the next time."""
        return frozenset(
            name for name, *_, identity, default in self.columns if identity or _UNSETTLED.search(default or "")
        )

    def key_of(self, row: str) -> str:
        """SQL for the key of a row in words."""
        if not self.key:
            return "''"
        columns = [f"{row}.{quoted(name)}" for name in self.key]
        return f"{columns[0]}::text" if len(columns) == 1 else f"ROW({', '.join(columns)})::text"

    def as_table(self) -> Table:
        columns = tuple(
            Column(name, kind, not required, bool(generated or identity))
            for name, kind, required, generated, identity, _ in self.columns
        )
        references = tuple(Reference(each.columns, each.parent, each.target) for each in self.foreign_keys)
        return Table(self.name, columns, self.key, self.unique, references, self.kind in _VIEWS)


@dataclass(frozen=True)
class Catalogue:
    """Tables and views by `SCHEMA/NAME`."""

    tables: dict[str, TableFacts] = field(default_factory=dict[str, TableFacts])

    def find(self, schema: str, name: str, schemas: Sequence[str]) -> TableFacts | None:
        """The table that a name means."""
        for each in (schema,) if schema else schemas:
            if found := self.tables.get(place_of(each, name)):
                return found
        return None

    @cached_property
    def _places(self) -> dict[int, str]:
        return {table.oid: place for place, table in self.tables.items()}

    def whole(self, place: str) -> str:
        """The table that a partition is part of, if it is one: as such its rows are told."""
        table = self.tables.get(place)
        return self._places.get(table.root, place) if table else place

    def with_cascades(self, places: Iterable[str]) -> set[str]:
        """Tables with all partitions beside them, and with those to whose rows foreign keys carry their changes."""
        found, waiting = set[str](), list(places)
        while waiting:
            place = self.whole(waiting.pop())
            if place not in found:
                found.add(place)
                waiting += [each.child for each in self.references_to(place) if _carries(each)]
                oid = self.tables[place].oid if place in self.tables else -1
                parts = {each.place for each in self.tables.values() if each.root == oid}
                waiting += [each.child for part in parts for each in self.references_to(part) if _carries(each)]
                found |= parts
        return found

    def with_referring(self, places: Iterable[str]) -> set[str]:
        """Tables with all that refer to them, over however many others: what TRUNCATE with CASCADE empties."""
        found, waiting = set[str](), list(places)
        while waiting:
            for place in self.with_cascades([waiting.pop()]) - found:
                found.add(place)
                waiting += [each.child for each in self.references_to(place)]
        return found

    def changed(self, after: Catalogue) -> set[str]:
        """Tables and views that came, went, or are made of something else."""
        both = self.tables.keys() & after.tables.keys()
        others = {place for place in both if self.tables[place].layout != after.tables[place].layout}
        return (self.tables.keys() ^ after.tables.keys()) | others

    def references_to(self, place: str) -> Iterator[ForeignKey]:
        for table in self.tables.values():
            yield from (each for each in table.foreign_keys if each.parent == place)

    def parents_first(self, places: Iterable[str]) -> list[str]:
        """Tables in an order in which, but for cycles, a table comes after those that it refers to."""
        wanted, found = sorted(places), list[str]()

        def visit(place: str, above: frozenset[str]) -> None:
            if place in found or place in above:
                return
            for each in self.tables[place].foreign_keys if place in self.tables else ():
                if each.parent in wanted:
                    visit(each.parent, above | {place})
            found.append(place)

        for place in wanted:
            visit(place, frozenset())
        return found


def _carries(key: ForeignKey) -> bool:
    return key.deleting in _CASCADING or key.updating in _CASCADING


_CLASSES = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text,
    EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'r')
    OR (NOT c.relispartition AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid)),
    CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::oid ELSE 0 END,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_partition_ancestors(c.oid))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS = """
SELECT a.attrelid, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text,
    a.attidentity::text, CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END
FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
_CONSTRAINTS = """
SELECT k.conrelid, k.contype::text, k.conname, k.confrelid, k.confdeltype::text, k.confupdtype::text, k.condeferrable,
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY u (n, i)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.i),
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.confkey) WITH ORDINALITY u (n, i)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.i)
FROM pg_catalog.pg_constraint k WHERE k.conrelid = ANY (%s) AND k.contype IN ('p', 'u', 'f') AND k.conparentid = 0
"""
_TRIGGERS = """
SELECT tgrelid, tgname, tgenabled::text FROM pg_catalog.pg_trigger WHERE tgrelid = ANY (%s) AND NOT tgisinternal
ORDER BY 1, 2
"""
_RULES = """
SELECT ev_class, rulename, ev_enabled::text FROM pg_catalog.pg_rewrite
WHERE ev_class = ANY (%s) AND rulename <> '_RETURN' ORDER BY 1, 2
"""


def catalogue_of(connection: Any, schemas: Sequence[str]) -> Catalogue:
    """What the schemas hold now, as far as this transaction sees it."""
    classes = connection.execute(_CLASSES, [list(schemas)]).fetchall()
    oids = [row[0] for row in classes]
    places = {oid: place_of(schema, name) for oid, schema, name, *_ in classes}
    columns: dict[int, list[Any]] = {}
    for oid, *column in connection.execute(_COLUMNS, [oids]).fetchall():
        columns.setdefault(oid, []).append(tuple(column))
    keys: dict[int, tuple[str, ...]] = {}
    unique: dict[int, list[tuple[str, ...]]] = {}
    foreign: dict[int, list[ForeignKey]] = {}
    for oid, kind, name, other, deleting, updating, late, own, theirs in connection.execute(_CONSTRAINTS, [oids]):
        if kind == "p":
            keys[oid] = tuple(own)
        elif kind == "u":
            unique.setdefault(oid, []).append(tuple(own))
        else:
            parent = places.get(other, f"?/{other}")
            foreign.setdefault(oid, []).append(
                ForeignKey(name, places[oid], tuple(own), parent, tuple(theirs), deleting, updating, late)
            )
    triggers: dict[int, list[tuple[str, str]]] = {}
    rules: dict[int, list[tuple[str, str]]] = {}
    for found, query in ((triggers, _TRIGGERS), (rules, _RULES)):
        for oid, name, enabled in connection.execute(query, [oids]):
            found.setdefault(oid, []).append((name, enabled))
    return Catalogue(
        {
            places[oid]: TableFacts(
                oid,
                schema,
                name,
                kind,
                tuple(columns.get(oid, ())),
                keys.get(oid, ()),
                tuple(unique.get(oid, ())),
                tuple(foreign.get(oid, ())),
                tuple(triggers.get(oid, ())),
                tuple(rules.get(oid, ())),
                inherits,
                root,
                level,
            )
            for oid, schema, name, kind, inherits, root, level in classes
        }
    )


def fields_of(row: str) -> list[str | None]:
    """The values in the text of a row, as PostgreSQL writes it: `(1,"a, b",)`."""
    found: list[str | None] = []
    place, end = 1, len(row) - 1
    while place <= end:
        if row[place] in ",)":
            found.append(None)
        elif row[place] == '"':
            text, place = _quoted_field(row, place + 1)
            found.append(text)
        else:
            start = place
            while row[place] not in ",)":
                place += 1
            found.append(row[start:place])
        place += 1
    return found


def _quoted_field(row: str, place: int) -> tuple[str, int]:
    text: list[str] = []
    while True:
        sign = row[place]
        if sign == '"' and row[place + 1] != '"':
            return "".join(text), place + 1
        place += 1 if sign not in '"\\' else 2
        text.append(sign if sign not in '"\\' else row[place - 1])
