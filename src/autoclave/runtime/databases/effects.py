"""The effect of statements on a database, as rows that went and rows that came. Pure.

The effect on a table is the difference of two multisets: the rows that were there before and are not any more, and
those that are there now and were not. It does not matter by which statements, cascades or triggers, nor in which order;
and tables without a key are no exception. A row that was modified went and came. To take an effect back is to do its
inverse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic_core import to_json

from autoclave.core.json import canonical_json
from autoclave.runtime.interface import InDoubt

Place = tuple[str, str]
"""Table and key of a row."""
Image = tuple[str, Any]
"""A row: its key in words (empty if it has none), and JSON data in the engine's own form that say all of it."""


@dataclass(frozen=True)
class TableEffect:
    """The effect on the rows of one table.

    Attributes:
        table: `SCHEMA/NAME`.
        layout: JSON, first the names of the columns that images hold, then all that the engine says of columns and key:
            images fit into a table of the same layout only.
        removed: rows that went, in an order that follows from the rows alone.
        added: rows that came, likewise. None of them is among `removed`.
    """

    table: str
    layout: str
    removed: Sequence[Image] = ()
    added: Sequence[Image] = ()

    @property
    def columns(self) -> list[str]:
        return json.loads(self.layout)[0]

    @property
    def has_keys(self) -> bool:
        return all(key for key, _ in (*self.removed, *self.added))

    @property
    def is_of_keys(self) -> bool:
        """True if it is a key-value database, which is one table, called by its number; each key is a resource."""
        return "/" not in self.table

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many rows were created, modified and deleted, by these verbs."""
        went, came = {key for key, _ in self.removed}, {key for key, _ in self.added}
        both = len((went & came) - {""})
        counts = {"create": len(self.added) - both, "modify": both, "delete": len(self.removed) - both}
        return {verb: number for verb, number in counts.items() if number}

    def inverse(self) -> TableEffect:
        return replace(self, removed=self.added, added=self.removed)

    def without(self, keys: Collection[str]) -> TableEffect:
        """The same, but for rows with these keys."""
        return replace(
            self,
            removed=tuple(each for each in self.removed if each[0] not in keys),
            added=tuple(each for each in self.added if each[0] not in keys),
        )

    def over(self, found: Mapping[str, Image | None]) -> TableEffect:
        """The same where others have put these rows, by their keys; None: there is none any more."""
        kept = [each for each in self.removed if each[0] not in found]
        return replace(self, removed=(*kept, *(image for image in found.values() if image is not None)))


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of an action on a database.

    Attributes:
        tables: rows that went and came.
        counters: where counters of AUTOINCREMENT stood before and after, by name; JSON data.
        reads: what it depended on: `SCHEMA/TABLE` or `SCHEMA/TABLE/KEY`.
        counted: table, verb and how many rows changed of which there are no images.
        side_effects: irreversible ones, in words: an undo is not exact for them.
        is_deterministic: whether doing it again on the same rows would bring the same rows; not so with random numbers.
    """

    tables: tuple[TableEffect, ...] = ()
    counters: Mapping[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    reads: frozenset[str] = frozenset()
    side_effects: tuple[str, ...] = ()
    is_deterministic: bool = True
    counted: tuple[tuple[str, str, int], ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not (self.counted or any(each.removed or each.added for each in self.tables))

    def has_come_true(self, where: str, not_before: Collection[Place], not_after: Collection[Place]) -> bool:
        """Return whether it was committed, all at once.

        `not_before`, `not_after`: rows that are not as they were before it, and not as it leaves them.

        Raises InDoubt where others have changed all that would tell; the message begins with `where`.
        """
        if bool(not_before) != bool(not_after):
            return not not_after
        places = {(each.table, key) for each in self.tables for key, _ in (*each.removed, *each.added)}
        says_before, says_after = places - set(not_before), places - set(not_after)
        if bool(says_before - says_after) != bool(says_after - says_before):
            return bool(says_after - says_before)
        raise InDoubt(f"{where}: others have changed all that would tell whether it was committed")

    def row_counts(self) -> Iterator[tuple[str, str, int]]:
        """Table (or key of a key-value database), verb and number of rows."""
        for table in self.tables:
            if table.is_of_keys:
                went, came = dict(table.removed), dict(table.added)
                for key in {**went, **came}:
                    verb = "create" if key not in went else "modify" if key in came else "delete"
                    yield f"{table.table}/{as_name(key)}", verb, 1
            else:
                yield from ((table.table, verb, rows) for verb, rows in table.counts.items())
        yield from self.counted

    def inverse(self) -> Effect:
        return replace(
            self,
            tables=tuple(table.inverse() for table in self.tables),
            counters={name: (after, before) for name, (before, after) in self.counters.items()},
        )

    def plain(self) -> Effect:
        """The same, with images of its rows that can be taken apart."""
        return self

    def to_bytes(self) -> bytes:
        """Return what `KeptRows` keeps of it: a line of JSON, and rows after a line break if the JSON has none."""
        return to_json(self, inf_nan_mode="constants")

    def digest(self) -> str:
        """Of what went, and of what came if that is deterministic; else how much."""
        told: list[Any] = []
        for table in sorted(self.tables, key=lambda each: each.table):
            removed, added = table.removed, table.added
            if table.is_of_keys:  # of the digest of what they hold: equal values may be kept as different bytes
                removed, added = ([(key, image[0]) for key, image in some] for some in (removed, added))
            text = json.dumps([removed, added if self.is_deterministic else len(added)]).encode()
            told.append([table.table, table.layout, hashlib.sha256(text).hexdigest()])
        told += self.counted
        return hashlib.sha256(canonical_json(told)).hexdigest()


AS_JSON = TypeAdapter(Effect)
NUM_KEYS = 300
"""Rows of one table that a footprint names; when there are more, it names the table."""


def keys_of(table: TableEffect) -> list[str]:
    """Return what it writes, below the database: rows, or the table when they are many or have no keys."""
    if max(len(table.removed), len(table.added)) > NUM_KEYS or not table.has_keys:
        return [table.table]
    keys = dict.fromkeys(key for key, _ in (*table.removed, *table.added))
    return [f"{table.table}/{as_name(key)}" for key in keys]


def as_name(text: str) -> str:
    """A text as one part of a path, which means this text only."""
    name = quote(text, safe=" ,:@+=()")
    return name if name not in (".", "..") else name.replace(".", "%2E")


def row_name(database: str, table: str, key: str) -> str:
    """`DATABASE/SCHEMA/TABLE/KEY`; rows without a key have the name of their table."""
    return f"{database}/{table}/{as_name(key)}" if key else f"{database}/{table}"
