"""Names of rows that others have changed, what a person chose for them, and rows as lines to be shown. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, Image, as_name
from autoclave.runtime.interface import Choice

_SHOWN_ROWS = 200


def row_name(database: str, table: str, key: str) -> str:
    """`DATABASE/SCHEMA/TABLE/KEY`; rows without a key have the name of their table."""
    return f"{database}/{table}/{as_name(key)}" if key else f"{database}/{table}"


def row_names(database: str, places: Collection[tuple[str, str]]) -> list[str]:
    """Names of rows by table and key."""
    return [row_name(database, table, key) for table, key in places]


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
        _require_possible(row_name(database, table, key), choice, has_key=bool(key))
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


def _require_possible(row: str, choice: Choice, *, has_key: bool) -> None:
    if choice is Choice.SAVE_ASIDE:
        raise InputError(f"{row}: a row has no other place to be saved in; choose skip or force")
    if choice is Choice.FORCE and not has_key:
        raise InputError(f"{row}: cannot be forced: what it is made of has changed, or its rows have no key")


def row_lines(table: str, removed: Sequence[Image], added: Sequence[Image]) -> Iterator[str]:
    """Rows that went and came, a line each."""
    if len(removed) + len(added) > _SHOWN_ROWS:
        yield f"{table}: {len(removed)} rows go, {len(added)} rows come; too many to show"
        return
    for sign, images in (("-", removed), ("+", added)):
        for _, data in images:
            yield f"{sign} {table}: {data if isinstance(data, str) else canonical_json(data).decode()}"
