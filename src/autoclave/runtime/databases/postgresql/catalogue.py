"""The tables of a PostgreSQL database: what they are made of, and how a row is written as text. Reads only."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from psycopg.rows import dict_row

from autoclave.runtime.databases.tables import BaseCatalogue, BaseTable, Column, ForeignKey, place_of, quoted

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
"""Types of PostgreSQL's own of which it is known that values come back from their text."""
_UNSETTLED = re.compile(r"\w\(|^(CURRENT_|LOCALTIME)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TableFacts(BaseTable):
    """One table. `columns`: name, type, not null, generated, identity, default.
    `triggers`: their names and when they fire.
    """

    oid: int
    columns: tuple[tuple[str, str, bool, str, str, str], ...]
    triggers: tuple[tuple[str, str], ...]
    refusal: str
    """The reason why its rows are not changed; empty if they are."""

    @property
    def is_view(self) -> bool:
        return self.kind in "vm"

    @property
    def quoted(self) -> str:
        return quoted(self.schema, self.name)

    @cached_property
    def layout(self) -> str:
        columns = [column[:5] for column in self.columns]
        return json.dumps([[column[0] for column in columns], columns, self.key], separators=(",", ":"))

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Columns that can be written: no generated ones."""
        return tuple(column[0] for column in self.columns if not column[3])

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """Columns that an update can set: besides, no identities that are always the database's."""
        return tuple(column[0] for column in self.columns if not column[3] and column[4] != "a")

    @cached_property
    def is_plain(self) -> bool:
        """True if it is known of all its types that values come back from their text."""
        return all(_PLAIN.fullmatch(column[1]) for column in self.columns)

    @cached_property
    def is_nondeterministic(self) -> bool:
        """True if some column's default may be another value the next time."""
        return any(identity or _UNSETTLED.search(default or "") for *_, identity, default in self.columns)

    def key_of(self, row: str) -> str:
        if not self.key:
            return "''"
        columns = [f"{row}.{quoted(name)}" for name in self.key]
        return f"{columns[0]}::text" if len(columns) == 1 else f"ROW({', '.join(columns)})::text"

    def is_same_key(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in self.key) or "true"

    def told_columns(self) -> Iterator[Column]:
        for name, kind, required, generated, identity, _ in self.columns:
            yield Column(name, kind, not required, bool(generated or identity))


@dataclass(frozen=True)
class Catalogue(BaseCatalogue[TableFacts]):
    """Tables and views by `SCHEMA/NAME`."""

    def with_referring(self, places: Iterable[str]) -> set[str]:
        """Tables with all that refer to them, over however many others: what TRUNCATE with CASCADE empties."""
        return self._reached(places, lambda _: True)

    def changed(self, after: "Catalogue") -> set[str]:
        """Tables and views that came, went, or are made of something else."""
        both = self.tables.keys() & after.tables.keys()
        others = {place for place in both if self.tables[place].layout != after.tables[place].layout}
        return (self.tables.keys() ^ after.tables.keys()) | others

    def parents_first(self, places: Collection[str]) -> list[str]:
        """Tables in an order in which a table comes after those that it refers to; any where these form a circle."""
        parents = {place: {key.parent for key in self.tables[place].foreign_keys} - {place} for place in places}
        try:
            ordered = TopologicalSorter(parents).static_order()
            return [place for place in ordered if place in places]
        except CycleError:
            return sorted(places)


_TABLES = Path(__file__).with_name("tables.sql").read_text("utf-8")
_CONSTRAINTS = Path(__file__).with_name("constraints.sql").read_text("utf-8")


def catalogue_of(connection: Any, schemas: Sequence[str]) -> Catalogue:
    """Return what the schemas hold now, as far as this transaction sees it."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(_TABLES, [list(schemas)]).fetchall()
    places = {facts["oid"]: place_of(facts["schema"], facts["name"]) for facts in found}
    keys: dict[int, tuple[str, ...]] = {}
    unique: dict[int, list[tuple[str, ...]]] = {}
    foreign: dict[int, list[ForeignKey]] = {}
    children: dict[str, list[ForeignKey]] = {}
    for oid, kind, name, other, *about, own, theirs in connection.execute(_CONSTRAINTS, [list(places)]):
        if kind == "p":
            keys[oid] = tuple(own)
        elif kind == "u":
            unique.setdefault(oid, []).append(tuple(own))
        else:
            key = ForeignKey(name, places[oid], tuple(own), places.get(other, f"?/{other}"), tuple(theirs), *about)
            foreign.setdefault(oid, []).append(key)
            children.setdefault(key.parent, []).append(key)
    for facts in found:
        facts |= {name: tuple(map(tuple, value)) for name, value in facts.items() if isinstance(value, list)}
        oid = facts["oid"]
        facts |= {"key": keys.get(oid, ()), "unique": tuple(unique.get(oid, ()))}
        facts |= {"foreign_keys": tuple(foreign.get(oid, ()))}
    return Catalogue({places[facts["oid"]]: TableFacts(**facts) for facts in found}, children)
