"""What statements on an SQLite file depend on, for footprints and grants: tables, or rows by their rowids. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autoclave.runtime.databases.effects import NUM_KEYS, TableEffect
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.sqlite.barrier import Seen
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, folded
from autoclave.runtime.databases.tables import name_of, place_of

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def reads_of(operation: Sql, number: int, seen: Seen, tables: Mapping[str, TableMaker]) -> set[str]:
    """What a statement depends on: rows that it names by their keys, else tables."""
    within = _known(seen.reads_within, tables) | seen.reads_own
    found = within | _known(seen.reads, tables) - {name for _, name in seen.created}
    named: set[str] = set()
    for name in seen.writes.keys() - within:
        table = tables.get(name)
        key = [table.stored[table.alias][0]] if table is not None and table.alias is not None else []
        rows = named_rows(operation.statements[number], operation.values_of(number), "sqlite", key)
        if rows is None or not all(map(_NUMBER.fullmatch, rows)):
            return {place_of("main", each) for each in found}
        named |= {f"{place_of('main', name)}/{row}" for row in rows}
    others = found - (seen.reads_of_keys | seen.writes.keys()) | within
    return {place_of("main", each) for each in others} | named


def _known(names: set[str], tables: Mapping[str, TableMaker]) -> set[str]:
    """Names of tables as they were defined; of what is no table, such as `json_each`, as they are."""
    defined = {folded(name): name for name in tables}
    return {defined.get(folded(name), name) for name in names}


def parents_of(effect: TableEffect, tables: Mapping[str, TableMaker]) -> Iterator[str]:
    """Rows that those that came refer to, where their key is the rowid; else their tables.

    Other keys may be spelt otherwise where they refer.
    """
    table = tables[name_of(effect.table)]
    places = {folded(column[0]): number for number, column in enumerate(table.stored)}
    for reference in table.references:
        parent = tables.get(name_of(reference.table))
        own = [places[folded(column)] for column in reference.columns]
        key = [] if parent is None or parent.alias is None else [folded(parent.stored[parent.alias][0])]
        target = [folded(column) for column in reference.target] or key
        if not key or target != key or len(effect.added) > NUM_KEYS:
            yield reference.table
            continue
        rows = [row for _, (_, values) in effect.added if None not in (row := [values[place] for place in own])]
        if any(type(row[0]) is not int for row in rows):
            yield reference.table
            continue
        yield from (f"{reference.table}/{row[0]}" for row in rows)
