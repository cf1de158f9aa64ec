"""The tables of some schemas of a MariaDB server: what they are made of, and what changes with them. Reads only."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from autoclave.core.sections import read_sections
from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.mariadb.connection import rows
from autoclave.runtime.databases.mariadb.values import ColumnFacts, Value, key_in_words, literal_of, quoted
from autoclave.runtime.databases.tables import BaseCatalogue, BaseTable, Column, ForeignKey, place_of


@dataclass(frozen=True, kw_only=True)
class TableFacts(BaseTable):
    """One table or view."""

    engine: str
    columns: tuple[ColumnFacts, ...]
    triggers: tuple[str, ...] = ()

    @property
    def quoted(self) -> str:
        return quoted(self.schema, self.name)

    @property
    def is_view(self) -> bool:
        return self.kind not in ("BASE TABLE", "SYSTEM VERSIONED")

    @cached_property
    def stored(self) -> tuple[ColumnFacts, ...]:
        return tuple(each for each in self.columns if not each.is_virtual)

    @cached_property
    def places(self) -> dict[str, int]:
        return {each.name: number for number, each in enumerate(self.stored)}

    @cached_property
    def layout(self) -> str:
        """Of what images of its rows are made."""
        columns = [
            [each.name, each.whole_kind, each.charset, each.collation, each.nullable, each.generation]
            for each in self.columns
        ]
        return json.dumps([[each.name for each in self.stored], columns, self.key], separators=(",", ":"))

    def reading(self, row: str = "") -> str:
        return ", ".join(each.reading(row) for each in self.stored)

    def image(self, row: Sequence[Value]) -> Image:
        key = [row[self.places[name]] for name in self.key]
        return (key_in_words(key) if key else "", [*row])

    def literals(self, image: Image, columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.stored[self.places[name]].literal(image[1][self.places[name]]) for name in columns)

    @property
    def fills_by_clock(self) -> bool:
        """True if some column gets a value by itself that is another each time."""
        return any(
            "(" in each.default or "on update" in each.extra.lower() for each in self.columns if not each.generation
        )

    def told_columns(self) -> Iterator[Column]:
        for each in self.columns:
            kind = each.kind if each.kind in ("enum", "set") else each.whole_kind
            yield Column(each.name, kind, each.nullable == "YES", bool(each.generation or each.counts_up))


Catalogue = BaseCatalogue[TableFacts]
"""Foreign keys that refer to a table are also those of other schemas."""


_SQL = {name: " ".join(lines) for name, lines in read_sections(Path(__file__).with_name("catalogue.sql")).items()}


def catalogue_of(connection: Any, schemas: Collection[str]) -> Catalogue:
    """Return what is in some schemas, as far as the user may see it."""
    wanted = f"({', '.join(map(literal_of, schemas))})"

    def found(query: str) -> dict[str, list[tuple[Any, ...]]]:
        """Rows by the place that their first two columns name."""
        by_place: dict[str, list[tuple[Any, ...]]] = {}
        for schema, name, *facts in rows(connection, _SQL[query].format(schemas=wanted)):
            by_place.setdefault(place_of(schema, name), []).append(tuple(facts))
        return by_place

    columns, triggers, indexes = found("columns"), found("triggers"), found("indexes")
    keys = [*_foreign_keys(connection)]
    tables: dict[str, TableFacts] = {}
    for schema, name, kind, engine in rows(connection, _SQL["tables"].format(schemas=wanted)):
        place = place_of(schema, name)
        unique = {
            index: tuple(column for _, column in some)
            for index, some in groupby(indexes.get(place, ()), lambda row: row[0])
        }
        tables[place] = TableFacts(
            schema=schema,
            name=name,
            kind=kind,
            engine=engine or "",
            columns=tuple(ColumnFacts(*(fact or "" for fact in facts)) for facts in columns.get(place, ())),
            key=unique.pop("PRIMARY", ()),
            unique=tuple(unique.values()),
            foreign_keys=tuple(each for each in keys if each.child == place),
            triggers=tuple(name for (name,) in triggers.get(place, ())),
        )
    children: dict[str, list[ForeignKey]] = {}
    for each in keys:
        children.setdefault(each.parent, []).append(each)
    return Catalogue(tables, children)


def _foreign_keys(connection: Any) -> Iterator[ForeignKey]:
    """Foreign keys of all schemas, also of those that the user does not see."""
    for (name, own, table, other, referred, rules), some in groupby(rows(connection, _KEYS), lambda row: row[:6]):
        columns, target = zip(*(row[6:] for row in some), strict=True)
        carries, deletes = bool(int(rules) & _CARRYING), bool(int(rules) & _DELETING)
        name = name.partition("/")[2]
        yield ForeignKey(name, place_of(own, table), columns, place_of(other, referred), target, carries, deletes)


_CARRYING, _DELETING = 0b1111, 0b0001


def _in_plain(column: str, part: int) -> str:
    """SQL for the schema (1) or table (-1) of a name as InnoDB spells it, like a file: `par@002dent` is `par-ent`."""
    spelt = f"SUBSTRING_INDEX({column}, '/', {part})"
    return f"CONVERT(CONVERT(CONVERT({spelt} USING binary) USING filename) USING utf8mb4)"


_KEYS = (
    f"SELECT f.id, {_in_plain('f.for_name', 1)}, {_in_plain('f.for_name', -1)}, {_in_plain('f.ref_name', 1)}, "
    f"{_in_plain('f.ref_name', -1)}, f.type, c.for_col_name, c.ref_col_name FROM information_schema.innodb_sys_foreign "
    "f JOIN information_schema.innodb_sys_foreign_cols c ON c.id = f.id ORDER BY f.id, c.pos"
)
