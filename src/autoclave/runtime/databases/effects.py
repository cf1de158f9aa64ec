"""What statements did to a database, as rows that went and rows that came. Pure.

The effect on a table is the difference of two multisets: the rows that were there before and are not any more, and
those that are there now and were not. It does not matter by which statements, cascades or triggers, nor in which order;
and tables without a key are no exception. A row that was modified went and came. To take an effect back is to do its
inverse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from autoclave.core.json import canonical_json
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.policy.request import Access

Image = tuple[str, Any]
"""A row: its key in words (empty if it has none), and JSON data in the engine's own form that say all of it."""


@dataclass(frozen=True)
class TableEffect:
    """What became of the rows of one table.

    Attributes:
        table: `SCHEMA/NAME`.
        layout: columns and key, in the engine's words: images fit into a table of the same layout only.
        removed: rows that went, in an order that follows from the rows alone.
        added: rows that came, likewise. None of them is among `removed`.
    """

    table: str
    layout: str
    removed: Sequence[Image] = ()
    added: Sequence[Image] = ()

    @property
    def keys(self) -> dict[str, None]:
        """The keys of rows that it changes, each once, in order."""
        return dict.fromkeys(key for key, _ in (*self.removed, *self.added) if key)

    @property
    def has_keys(self) -> bool:
        """Whether each of its rows has a key."""
        return all(key for key, _ in (*self.removed, *self.added))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many rows were created, modified and deleted, by these verbs."""
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
    """What an action did to a database.

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

    @property
    def places(self) -> set[tuple[str, str]]:
        """The rows that it changes, by table and key."""
        return {(each.table, key) for each in self.tables for key, _ in (*each.removed, *each.added)}

    def has_come_true(
        self, not_before: Collection[tuple[str, str]], not_after: Collection[tuple[str, str]]
    ) -> bool | None:
        """Whether it was committed, all at once; None: others have changed all that would tell.

        `not_before`, `not_after`: places that are not as they were before it, and not as it leaves them.
        """
        if bool(not_before) != bool(not_after):
            return not not_after
        says_before, says_after = self.places - set(not_before), self.places - set(not_after)
        if bool(says_before - says_after) != bool(says_after - says_before):
            return bool(says_after - says_before)
        return None

    @property
    def num_rows(self) -> int:
        """Rows that it changes."""
        return sum(rows for _, _, rows in self.row_counts())

    def row_counts(self) -> Iterator[tuple[str, str, int]]:
        """Table, verb and number of rows."""
        for table in self.tables:
            yield from ((table.table, verb, rows) for verb, rows in table.counts.items())
        yield from self.counted

    def inverse(self) -> Effect:
        """What takes it back."""
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
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False).encode()

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "tables": [[each.table, each.layout, each.removed, each.added] for each in self.tables],
            "counters": self.counters,
            "reads": sorted(self.reads),
            "side_effects": self.side_effects,
            "is_deterministic": self.is_deterministic,
            "counted": self.counted,
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Effect:
        def images(rows: Sequence[Any]) -> tuple[Image, ...]:
            return tuple((key, data) for key, data in rows)

        return Effect(
            tuple(
                TableEffect(name, layout, images(went), images(came)) for name, layout, went, came in given["tables"]
            ),
            {name: (before, after) for name, (before, after) in given["counters"].items()},
            frozenset(given["reads"]),
            tuple(given["side_effects"]),
            given["is_deterministic"],
            tuple((table, verb, rows) for table, verb, rows in given["counted"]),
        )

    def digest(self) -> str:
        """Of what went, and of what came if that is deterministic; else how much."""
        told: list[Any] = []
        for table in sorted(self.tables, key=lambda each: each.table):
            came = table.added if self.is_deterministic else len(table.added)
            text = json.dumps([table.removed, came]).encode()
            told.append([table.table, table.layout, hashlib.sha256(text).hexdigest()])
        told += self.counted
        return hashlib.sha256(canonical_json(told)).hexdigest()


NUM_KEYS = 300
"""Rows of one table that a footprint names; when there are more, it names the table."""


def keys_of(table: TableEffect) -> list[str]:
    """What it writes, below the database: rows, or the table when they are many or have no keys."""
    if max(len(table.removed), len(table.added)) > NUM_KEYS or not table.has_keys:
        return [table.table]
    keys = table.keys
    return [f"{table.table}/{as_name(key)}" for key in keys]


def as_name(text: str | bytes) -> str:
    """A text, or bytes, as one part of a path, which means these only."""
    name = quote(text, safe=" ,:@+=()")
    return name if name not in (".", "..") else name.replace(".", "%2E")


def accesses_of(effect: Effect, database: str) -> Iterator[Access]:
    """What the policy decides about: rows by table and verb, and tables that were read."""
    for table, verb, rows in effect.row_counts():
        yield Access(verb, f"databases/{database}/{table}", rows=rows)
    for table in sorted({table_of(key) for key in effect.reads}):
        yield Access("read", f"databases/{database}/{table}")


def is_same(one: Image | None, other: Image | None) -> bool:
    """Whether two rows are the same to the last bit; 1 and 1.0 are not."""
    return one == other and repr(one) == repr(other)


def net(events: Iterable[tuple[str, Image | None, Image | None]]) -> tuple[list[Image], list[Image]]:
    """Rows that went and rows that came, by events in the order in which they happened.

    An event has the place of a row, what was there, and what is there after it.
    """
    before: dict[str, Image | None] = {}
    after: dict[str, Image | None] = {}
    for place, old, new in events:
        before.setdefault(place, old)
        after[place] = new
    changed = [place for place, old in before.items() if not is_same(old, after[place])]
    return (
        sorted((old for place in changed if (old := before[place]) is not None), key=itemgetter(0)),
        sorted((new for place in changed if (new := after[place]) is not None), key=itemgetter(0)),
    )
