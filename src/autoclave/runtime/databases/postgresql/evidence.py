"""What shows that something happened, besides rows that were heard of: counters of rows, files of tables, sequences.

These see the whole database, and whatever ran there: a table that is emptied gets a new file, as does a sequence that
is started again. What others do at the same time is told apart by the locks of this connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import NUM_KEYS, TableEffect, as_name
from autoclave.runtime.databases.places import place_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, fields_of
from autoclave.runtime.databases.postgresql.functions import are_settled
from autoclave.runtime.databases.postgresql.parsing import Statement
from autoclave.runtime.databases.postgresql.recorder import Counts

_FILES = """
SELECT c.oid, n.nspname, c.relname, pg_catalog.pg_relation_filenode(c.oid),
    c.oid IN (SELECT relation FROM pg_catalog.pg_locks WHERE relation IS NOT NULL AND granted
        AND pid = pg_catalog.pg_backend_pid() AND mode IN ('AccessExclusiveLock', 'ShareRowExclusiveLock'))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_BEFORE_EMPTIED = """
SELECT n.nspname, c.relname, t.tgname FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid WHERE t.tgtype & 34 = 34 AND t.tgenabled <> 'D'
    AND p.pronamespace <> pg_catalog.pg_my_temp_schema() ORDER BY 1, 2, 3
"""
"""Triggers BEFORE (2) TRUNCATE (32), but for ours."""
_SEQUENCES = """
SELECT schemaname, sequencename, COALESCE(last_value, start_value - increment_by)
FROM pg_catalog.pg_sequences WHERE schemaname NOT LIKE 'pg\\_temp%'
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a database stands.

    Attributes:
        files: of tables and sequences, by oid: its place, the number of its file, and whether it is locked by us.
        counters: of sequences by place: the last number that was drawn, or one before the first.
    """

    files: dict[int, tuple[str, int, bool]] = field(default_factory=dict[int, tuple[str, int, bool]])
    counters: dict[str, int] = field(default_factory=dict[str, int])

    def rewritten(self, before: Standing) -> set[str]:
        """Tables and sequences that have another file than before, by our doing."""
        both = self.files.keys() & before.files.keys()
        return {self.files[oid][0] for oid in both if self.files[oid][1] != before.files[oid][1] and self.files[oid][2]}

    def moved(self, before: Standing) -> dict[str, tuple[int, int]]:
        """Where sequences stood before and stand now, of those that moved."""
        both = self.counters.keys() & before.counters.keys()
        pairs = {name: (before.counters[name], self.counters[name]) for name in sorted(both)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def standing_of(connection: Any) -> Standing:
    """How the database of a connection stands, as far as its transaction sees it."""
    files = {oid: (place_of(*names), number, ours) for oid, *names, number, ours in connection.execute(_FILES)}
    counters = {place_of(*names): last for *names, last in connection.execute(_SEQUENCES).fetchall()}
    return Standing(files, counters)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at while statements are run.

    Attributes:
        listens: whether rows are heard of; else they are only counted, because tables are defined anew.
        heard: tables that are listened to.
        defined: tables that are defined, with their partitions and with those that follow them.
        sizes: how many rows tables have that are emptied, where they are only counted.
    """

    listens: bool
    heard: tuple[TableFacts, ...] = ()
    defined: frozenset[str] | set[str] = frozenset()
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def places(self) -> set[str]:
        return {table.place for table in self.heard}

    def counted(
        self, counts: Counts, rewritten: Collection[str], catalogue: Catalogue
    ) -> tuple[tuple[str, str, int], ...]:
        """Tables, verbs and numbers of rows that changed, by what the server counted."""
        found: Counter[tuple[str, str]] = Counter()
        for place, numbers in counts.items():
            for verb, number in zip(("create", "modify", "delete"), numbers, strict=True):
                found[catalogue.whole(place), verb] += max(number, 0)
        for place in rewritten:
            found[catalogue.whole(place), "delete"] += self.sizes.get(place, 0)
        return tuple((place, verb, number) for (place, verb), number in sorted(found.items()) if number)


def require_emptied_as_heard(connection: Any, emptied: Collection[str]) -> None:
    """Look that no trigger changed rows between the time when they were read and when the tables were emptied.

    Raises:
        InputError: one may have.
    """
    for schema, table, trigger in connection.execute(_BEFORE_EMPTIED).fetchall() if emptied else ():
        if (place := place_of(schema, table)) in emptied:
            raise InputError(
                f"table {place}: its trigger {trigger} runs before it is emptied, and may change rows unseen. "
                "Fix: DELETE"
            )


def sizes_of(connection: Any, catalogue: Catalogue, places: Iterable[str]) -> dict[str, int]:
    """How many rows tables have, those that are made of partitions left out."""
    tables = [table for place in sorted(places) if (table := catalogue.tables[place]).kind == "r"]
    query = "SELECT pg_catalog.count(*) FROM ONLY {}"
    return {table.place: connection.execute(query.format(table.quoted)).fetchone()[0] for table in tables}


def parents(effect: TableEffect, catalogue: Catalogue) -> Iterator[str]:
    """Rows that those that came refer to, as far as the reference is to a key; else their tables."""
    table = catalogue.tables[effect.table]
    places = {column[0]: number for number, column in enumerate(table.columns)}
    for each in table.foreign_keys:
        parent = catalogue.tables.get(each.parent)
        if parent is None:
            continue
        if parent.key != each.target or len(each.target) != 1 or len(effect.added) > NUM_KEYS:
            yield each.parent
            continue
        for _, row in effect.added:
            if (value := fields_of(row)[places[each.columns[0]]]) is not None:
                yield f"{each.parent}/{as_name(value)}"


def leaks(moved: Iterable[str], effects: Iterable[TableEffect], catalogue: Catalogue) -> Iterator[str]:
    """What a rollback and an undo do not take back."""
    for name in sorted(moved):
        yield f"sequence {name} has drawn numbers that it does not give again: a gap stays, also of planning"
    for each in effects:
        if names := sorted({name for table in _parts(each.table, catalogue) for name, _ in table.triggers}):
            yield f"triggers of {each.table} ({', '.join(names)}) may have done something outside of the tables"


def has_triggers(effects: Iterable[TableEffect], catalogue: Catalogue) -> bool:
    """Whether triggers of somebody's own fired, or may have."""
    return any(table.triggers for each in effects for table in _parts(each.table, catalogue))


def _parts(place: str, catalogue: Catalogue) -> Iterator[TableFacts]:
    """A table and its partitions."""
    if table := catalogue.tables.get(place):
        yield table
        yield from (each for each in catalogue.tables.values() if each.root == table.oid)


def is_settled(
    statements: Iterable[Statement], effects: Collection[TableEffect], catalogue: Catalogue, schemas: tuple[str, ...]
) -> bool:
    """Whether the same rows would come if it were done again."""
    filled: dict[str, set[str]] = {}
    for each in statements:
        if each.asks_clock or not are_settled(each.functions):
            return False
        for name, columns in each.filled:
            if table := catalogue.find(*name, schemas):
                own = set(table.columns_up_to(columns) if isinstance(columns, int) else columns)
                place = catalogue.whole(table.place)
                filled[place] = filled.get(place, own) & own
        for name in each.defaulted:
            if table := catalogue.find(*name, schemas):
                filled[catalogue.whole(table.place)] = set()
    if has_triggers(effects, catalogue):
        return False
    for effect in effects:
        unsettled = {name for table in _parts(effect.table, catalogue) for name in table.unsettled}
        is_filled = effect.counts.get("create") or effect.table in filled
        if is_filled and unsettled - filled.get(effect.table, set[str]()):
            return False
    return True
