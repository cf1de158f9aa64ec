"""Reads values of MariaDB without loss, and writes them as literals. Pure.

A value in an image is a text, or None. Numbers, times and texts of Unicode stand as they are; what may hold any bytes
stands in hexadecimal digits, and labels of ENUM and SET as the numbers that stand for them.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autoclave.core import InputError
from autoclave.runtime.databases import tables
from autoclave.runtime.databases.operations import Parameter

Value = str | None


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WHOLE = words("tinyint smallint mediumint int bigint")
_TEXTS = words("char varchar tinytext text mediumtext longtext")
_BYTES = words("""
    binary varbinary tinyblob blob mediumblob longblob
    geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection
""")
_QUOTED = words("date time datetime timestamp year uuid inet4 inet6")
_KNOWN = WHOLE | _TEXTS | _BYTES | _QUOTED | words("decimal float double bit enum set")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
quoted = partial(tables.quoted, mark="`")


def literal_of(text: str, charset: str = "utf8mb4") -> str:
    return f"_{charset} x'{text.encode().hex()}'"


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column, as the catalogue has it. `kind`: its type without sizes; `generation`: how it is computed, if it is."""

    name: str
    kind: str
    whole_kind: str
    nullable: str
    charset: str
    collation: str
    default: str
    extra: str
    generation: str

    @property
    def is_virtual(self) -> bool:
        return bool(self.generation) and "VIRTUAL" in self.extra

    @property
    def counts_up(self) -> bool:
        return "auto_increment" in self.extra

    @property
    def is_known(self) -> bool:
        return self.kind in _KNOWN

    @property
    def _is_bytes(self) -> bool:
        return self.kind in _BYTES or (self.kind in _TEXTS and self.charset not in ("utf8mb4", "utf8mb3", "utf8"))

    def reading(self, row: str = "") -> str:
        """SQL for its value in an image."""
        column = f"{row}.{quoted(self.name)}" if row else quoted(self.name)
        if self.kind in ("float", "double"):
            return f"CAST({column} AS DOUBLE)"
        if self.kind in ("enum", "set", "bit"):
            return f"{column} + 0"
        return f"HEX({column})" if self._is_bytes else column

    def literal(self, value: Value) -> str:
        """SQL for a value out of an image. Raises InputError where it is none of the type."""
        if value is None:
            return "NULL"
        if self._is_bytes:
            introducer = f"_{self.charset} " if self.kind in _TEXTS else ""
            return f"{introducer}x'{bytes.fromhex(value).hex()}'"
        if self.kind in _TEXTS | _QUOTED:
            return literal_of(value, self.charset or "utf8mb4")
        if not _NUMBER.fullmatch(value):
            raise InputError(f"column {self.name}: a value that was kept is none of the type {self.kind}")
        return f"CAST('{value}' AS DOUBLE)" if self.kind in ("float", "double") else value


def parameter(value: Parameter) -> str:
    """SQL for a value that is given beside a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"{int(value)}" if value >= 0 else f"({value})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return literal_of(value)


def key_in_words(values: Sequence[Value]) -> str:
    """A key as a text that no other key of the table has."""
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"))
    only = f"{values[0]}"
    return only if only and only[0] != '"' else json.dumps(only)
