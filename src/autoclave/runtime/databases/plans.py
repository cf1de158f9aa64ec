"""What is planned, told to the policy, to a person and to the journal. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, accesses_of, keys_of
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.policy.request import Access

_ROOT = "databases"


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
    """What statements did, or would do."""
    defining = (Access("define", f"{_ROOT}/{database}/{name}") for name in sorted(defined))
    return (*accesses_of(effect, database), *defining)


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
