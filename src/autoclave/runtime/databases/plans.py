"""What is planned, told to the policy, to a person and to the journal, and what a person chose for rows. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, Image, TableEffect, keys_of, row_name
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.databases.tables import table_of
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.interface import Choice
from autoclave.runtime.policy.request import Access

_ROOT, _SHOWN_ROWS = "databases", 200


def accesses_of_reading(database: str, reading: Reading) -> Iterator[Access]:
    """What statements ask for before they are run."""
    for table, verbs in sorted(reading.writes.items()):
        for verb in sorted(verbs):
            yield Access(verb, f"{_ROOT}/{database}/{table}")
    for name in sorted(reading.defines):
        yield Access("define", f"{_ROOT}/{database}/{name}")
    for table in sorted({table_of(key) for key in reading.reads}):
        yield Access("read", f"{_ROOT}/{database}/{table}")


def accesses(database: str, effect: Effect, defined: frozenset[str]) -> tuple[Access, ...]:
    """What statements did, or would do: rows by table and verb, tables that were read, and definitions."""
    found = [Access(verb, f"{_ROOT}/{database}/{table}", rows=rows) for table, verb, rows in effect.row_counts()]
    found += [Access("read", f"{_ROOT}/{database}/{table}") for table in sorted(set(map(table_of, effect.reads)))]
    return (*found, *(Access("define", f"{_ROOT}/{database}/{name}") for name in sorted(defined)))


def digest(sql: Sql, mode: Mode, effect: Effect, defined: frozenset[str]) -> str:
    """Of the statements and of what they do."""
    told = [sql.model_dump(mode="json"), mode, sorted(defined), effect.digest()]
    return hashlib.sha256(canonical_json(told)).hexdigest()


def changes(database: str, effect: Effect, defined: frozenset[str]) -> Iterator[str]:
    """What statements would do, a line each."""
    for table, verb, rows in effect.row_counts():
        yield f"{verb} {rows} row{'' if rows == 1 else 's'} of {database}/{table}"
    for name in sorted(defined):
        yield f"define {database}/{name}"
    yield from effect.side_effects


def footprint(database: str, effect: Effect, defined: frozenset[str]) -> Footprint:
    """What it depends on, and what it changes: rows, or tables."""
    writes = {key for table in effect.tables for key in keys_of(table)} | {each[0] for each in effect.counted}
    writes |= defined
    return Footprint(
        frozenset(f"{_ROOT}/{database}/{key}" for key in effect.reads),
        frozenset(f"{_ROOT}/{database}/{key}" for key in writes),
    )


def chosen(
    effect: Effect,
    conflicting: Mapping[tuple[str, str], Image | None],
    database: str,
    choices: Mapping[str, Choice],
    default: Choice,
) -> Effect:
    """An effect, with what is chosen for rows that others have changed: `conflicting`, as they are now.

    Raises:
        InputError: what is chosen cannot be done with rows.
    """
    effect = effect.plain()
    said = {(table, key): choices.get(row_name(database, table, key), default) for table, key in conflicting}
    for (table, key), choice in said.items():
        row = row_name(database, table, key)
        if choice is Choice.SAVE_ASIDE:
            raise InputError(f"{row}: a row has no other place to be saved in; choose skip or force")
        if choice is Choice.FORCE and not key:
            raise InputError(f"{row}: cannot be forced: what it is made of has changed, or its rows have no key")
    skipped = {place for place, choice in said.items() if choice is Choice.SKIP}
    whole = {table for table, key in skipped if not key}
    tables = []
    for each in effect.tables:
        if each.table in whole:
            continue
        forced = {
            key: conflicting[table, key]
            for (table, key), choice in said.items()
            if choice is Choice.FORCE and table == each.table
        }
        tables.append(each.without({key for table, key in skipped if table == each.table}).over(forced))
    return replace(effect, tables=tuple(tables))


def row_lines(effect: TableEffect) -> Iterator[str]:
    """The columns of a table, and its rows that went and came, a line each."""
    table, removed, added = effect.table, effect.removed, effect.added
    if len(removed) + len(added) > _SHOWN_ROWS:
        yield f"{table}: {len(removed)} rows go, {len(added)} rows come; too many to show"
        return
    yield f"{table}: {', '.join(effect.columns)}"
    for sign, images in (("-", removed), ("+", added)):
        for _, data in images:
            yield f"{sign} {table}: {data if isinstance(data, str) else canonical_json(data).decode()}"
