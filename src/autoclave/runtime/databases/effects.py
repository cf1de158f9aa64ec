"""What statements did to a database, as rows that went and rows that came. Pure.

The effect on a table is the difference of two multisets: the rows that were there before and are not any more, and
those that are there now and were not. It does not matter by which statements, cascades or triggers, nor in which order;
and tables without a key are no exception. A row that was modified went and came. To take an effect back is to do its
inverse.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from autoclave.core.json import canonical_json
from autoclave.runtime.databases.images import Image, is_same, keys_in, text_of
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.policy.request import Access


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
        return dict.fromkeys(key for key in (*keys_in(self.removed), *keys_in(self.added)) if key)

    @property
    def has_keys(self) -> bool:
        """Whether each of its rows has a key."""
        return all((*keys_in(self.removed), *keys_in(self.added)))

    @cached_property
    def texts(self) -> tuple[str, str]:
        """What went and what came, as JSON."""
        return text_of(self.removed), text_of(self.added)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many rows were created, modified and deleted, by these verbs."""
        went, came = set(keys_in(self.removed)), set(keys_in(self.added))
        both = len((went & came) - {""})
        counts = {"create": len(self.added) - both, "modify": both, "delete": len(self.removed) - both}
        return {verb: number for verb, number in counts.items() if number}

    def inverse(self) -> TableEffect:
        inverse = replace(self, removed=self.added, added=self.removed)
        if "texts" in self.__dict__:  # they are long, and the same
            inverse.__dict__["texts"] = self.texts[::-1]
        if "counts" in self.__dict__:
            inverse.with_counts({_OPPOSITE[verb]: rows for verb, rows in self.counts.items()})
        return inverse

    def with_counts(self, counts: dict[str, int]) -> TableEffect:
        """The same, of which `counts` is known already."""
        self.__dict__["counts"] = counts
        return self

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
class Definition:
    """A table, an index or a view that was created: what makes it, and what it was found to be."""

    kind: str
    name: str
    statement: str
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action did to a database.

    Attributes:
        tables: rows that went and came.
        created: what was defined, in this order.
        dropped: what was taken away, in this order.
        counters: where counters (of AUTOINCREMENT, restarted sequences) stood before and after, by name; JSON data.
        reads: what it depended on: `SCHEMA/TABLE` or `SCHEMA/TABLE/KEY`.
        counted: table, verb and how many rows changed of which there are no images.
        leaks: why an undo is not exact: what it did that no rollback takes back.
        is_settled: whether doing it again on the same rows would bring the same rows; not so with random numbers.
        evidence: by what the engine that rehearsed it tells, without reading the rows, that it was done. Not kept.
    """

    tables: tuple[TableEffect, ...] = ()
    created: tuple[Definition, ...] = ()
    dropped: tuple[Definition, ...] = ()
    counters: Mapping[str, tuple[Any, Any]] = None  # type: ignore[assignment]
    reads: frozenset[str] = frozenset()
    leaks: tuple[str, ...] = ()
    is_settled: bool = True
    counted: tuple[tuple[str, str, int], ...] = ()
    evidence: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.counters is None:
            object.__setattr__(self, "counters", {})

    @property
    def is_nothing(self) -> bool:
        defines = self.created or self.dropped
        return not (defines or self.counted or any(each.removed or each.added for each in self.tables))

    @property
    def places(self) -> set[tuple[str, str]]:
        """What it changes: rows by table and key, and what it defines by name, with the key ""."""
        rows = {(each.table, key) for each in self.tables for key in (*keys_in(each.removed), *keys_in(each.added))}
        return rows | {(each.name, "") for each in (*self.created, *self.dropped)}

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
            created=self.dropped[::-1],
            dropped=self.created[::-1],
            counters={name: (after, before) for name, (before, after) in self.counters.items()},
            evidence=None,
        )

    def to_text(self) -> str:
        """As JSON."""
        tables = (f"[{_text(each.table)},{_text(each.layout)},{','.join(each.texts)}]" for each in self.tables)
        rest = {
            "created": [[each.kind, each.name, each.statement, each.layout] for each in self.created],
            "dropped": [[each.kind, each.name, each.statement, each.layout] for each in self.dropped],
            "counters": self.counters,
            "reads": sorted(self.reads),
            "leaks": self.leaks,
            "is_settled": self.is_settled,
            "counted": self.counted,
        }
        return f'{{"tables":[{",".join(tables)}],{_text(rest)[1:]}'

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Effect:
        def images(rows: Sequence[Any]) -> tuple[Image, ...]:
            return tuple((key, data) for key, data in rows)

        return Effect(
            tuple(
                TableEffect(name, layout, images(went), images(came)) for name, layout, went, came in given["tables"]
            ),
            tuple(Definition(*each) for each in given["created"]),
            tuple(Definition(*each) for each in given["dropped"]),
            {name: (before, after) for name, (before, after) in given["counters"].items()},
            frozenset(given["reads"]),
            tuple(given["leaks"]),
            given["is_settled"],
            tuple((table, verb, rows) for table, verb, rows in given["counted"]),
        )

    def digest(self) -> str:
        """Of what went, and of what came as far as that is settled; of the rest, how much."""
        told: list[Any] = [[each.kind, each.name, each.statement] for each in (*self.created, *self.dropped)]
        for table in sorted(self.tables, key=lambda each: each.table):
            went, came = table.texts
            rows = [went, came if self.is_settled else f"{len(table.added)}"]
            told.append([table.table, table.layout, *(hashlib.sha256(text.encode()).hexdigest() for text in rows)])
        told += self.counted
        return hashlib.sha256(canonical_json(told)).hexdigest()


_OPPOSITE = {"create": "delete", "modify": "modify", "delete": "create"}
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
    """What the policy decides about: rows by table and verb, definitions, and tables that were read."""
    for table, verb, rows in effect.row_counts():
        yield Access(verb, f"databases/{database}/{table}", rows=rows)
    for each in (*effect.created, *effect.dropped):
        yield Access("define", f"databases/{database}/{each.name}")
    for table in sorted({table_of(key) for key in effect.reads}):
        yield Access("read", f"databases/{database}/{table}")


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Many rows are made in the block: the collector would walk them over and over, and none of them has a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _text(plain: Any) -> str:
    return json.dumps(plain, separators=(",", ":"))


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
