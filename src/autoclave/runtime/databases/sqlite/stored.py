"""Effects on an SQLite file whose rows are kept as two small SQLite databases: the rows that went, those that came.

The rows of the table with the number N are in `tN`, by their rowids, with a column `c0`, `c1`, ... for each that is in
the file, without types, so that each value stays as it is. SQLite copies, compares and writes them; none becomes a
value of Python unless somebody looks at it. It is an image then: its key in words and `[rowid, values]`. Values are as
Python has them, but for blobs, `{"b": HEX}`, and texts that are none in the encoding of the file, `{"t": HEX}`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import apsw

from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import AS_JSON, Effect, Image, TableEffect

_HEX = "CASE typeof({0}) WHEN 'text' THEN 't' || hex({0}) WHEN 'blob' THEN 'b' || hex({0}) ELSE {0} END"


class Naming(NamedTuple):
    """The names of the rows of a table: the columns of their key (`key`: their places), else their rowids."""

    has_rowid: bool
    is_alias: bool
    """True if the key is the rowid itself."""
    key: Sequence[int]

    def words(self, rowid: int | None, values: Sequence[Any]) -> str:
        """A key as a text that no other key of the table has."""
        if self.is_alias:
            return f"{rowid}"
        key = [values[number] for number in self.key]
        if not key or None in key:
            return f"rowid {rowid}"
        if len(key) > 1:
            return json.dumps(key, separators=(",", ":"))
        (value,) = key
        if isinstance(value, str) and value[:1].isalpha() and not value.startswith(("rowid ", "Infinity")):
            return value  # that float is written so
        return json.dumps(value, separators=(",", ":"))


def images_of(connection: "apsw.Connection", naming: Naming, columns: Sequence[str], rest: str) -> list[Image]:
    """Rows as images. `columns`: the rowid (NULL if there is none) and those that are in the file; `rest`: FROM ..."""
    ((encoding,),) = connection.execute("PRAGMA encoding")
    rows = connection.execute(f"SELECT {columns[0]}, {', '.join(map(_HEX.format, columns[1:]))} {rest}")
    found = ((rowid, [_of_hex(value, encoding) for value in values]) for rowid, *values in rows)
    return [(naming.words(*data), [*data]) for data in found]


def _of_hex(value: Any, encoding: str) -> Any:
    """A value as it stands in an image, out of what `_HEX` makes of it in a file whose texts have this encoding."""
    if not isinstance(value, str):
        return value
    raw = bytes.fromhex(value[1:])
    try:
        return raw.decode(encoding) if value[0] == "t" else {"b": raw.hex()}
    except UnicodeDecodeError:
        return {"t": raw.hex()}


@dataclass(frozen=True)
class StoredRows(Sequence[Image]):
    """The rows of the table with a number in a kept database, decoded when they are looked at."""

    content: bytes
    number: int
    num_rows: int
    naming: Naming

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, place: Any) -> Any:
        return self._images[place]

    @cached_property
    def _images(self) -> list[Image]:
        if not self.num_rows:
            return []
        with closing(apsw.Connection(":memory:")) as kept:
            kept.deserialize("main", self.content)
            names = [name for (name,) in kept.execute("SELECT name FROM pragma_table_info(?)", (f"t{self.number}",))]
            rowid = "rowid" if self.naming.has_rowid else "NULL"
            return images_of(kept, self.naming, [rowid, *names], f"FROM t{self.number} ORDER BY rowid")


@dataclass(frozen=True)
class StoredTable(TableEffect):
    """See `TableEffect`. `num_modified`: how many rows have a key of which one row went and one came."""

    num_modified: int = 0

    @cached_property
    def counts(self) -> dict[str, int]:
        both = self.num_modified
        counts = {"create": len(self.added) - both, "modify": both, "delete": len(self.removed) - both}
        return {verb: number for verb, number in counts.items() if number}


@dataclass(frozen=True)
class StoredEffect(Effect):
    """See `Effect`. `went` and `came`: the kept databases; empty where no row changed."""

    went: bytes = b""
    came: bytes = b""

    def inverse(self) -> "StoredEffect":
        return replace(Effect.inverse(self), went=self.came, came=self.went)  # type: ignore[return-value]

    def plain(self) -> Effect:
        tables = tuple(TableEffect(each.table, each.layout, [*each.removed], [*each.added]) for each in self.tables)
        told = self.counters, self.reads, self.side_effects, self.is_deterministic, self.counted
        return Effect(tables, *told)

    def digest(self) -> str:
        told: list[Any] = [[each.table, each.layout, len(each.removed), len(each.added)] for each in self.tables]
        told += [*self.counted, hashlib.sha256(self.went).hexdigest()]
        told += [hashlib.sha256(self.came).hexdigest()] if self.is_deterministic else []
        return hashlib.sha256(canonical_json(told)).hexdigest()

    def to_bytes(self) -> bytes:
        told = AS_JSON.dump_python(Effect(**{name: getattr(self, name) for name in _TOLD}), mode="json")
        tables = [_table_as_json(each) for each in self.tables]
        header = json.dumps({**told, "tables": tables, "num_went": len(self.went)}, separators=(",", ":"))
        return b"\n".join((header.encode(), self.went + self.came))

    @staticmethod
    def from_parts(given: Mapping[str, Any], rows: bytes) -> "StoredEffect":
        """Return the effect with what `to_bytes` writes before and after the first line break."""
        went, came = rows[: given["num_went"]], rows[given["num_went"] :]
        tables: list[StoredTable] = []
        for table, layout, number, naming, num_went, num_came, num_modified in given["tables"]:
            sides = (
                StoredRows(went, number, num_went, Naming(*naming)),
                StoredRows(came, number, num_came, Naming(*naming)),
            )
            tables.append(StoredTable(table, layout, *sides, num_modified))
        told = AS_JSON.validate_python({name: given[name] for name in _TOLD})
        return StoredEffect(tuple(tables), **{name: getattr(told, name) for name in _TOLD}, went=went, came=came)


_TOLD = ("counters", "reads", "side_effects", "is_deterministic", "counted")


def _table_as_json(each: TableEffect) -> list[Any]:
    assert isinstance(each, StoredTable)
    rows = each.removed
    assert isinstance(rows, StoredRows)
    return [each.table, each.layout, rows.number, rows.naming, len(rows), len(each.added), each.num_modified]
