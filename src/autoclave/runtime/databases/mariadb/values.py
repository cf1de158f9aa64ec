"""How values of MariaDB are read so that nothing is lost, and written as literals that mean them. Pure.

A value in an image is a text, or None. Numbers, times and texts of Unicode stand as they are; what may hold any bytes
stands in hexadecimal digits, and labels of ENUM and SET as the numbers that stand for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.databases.operations import Parameter

Value = str | None
WHOLE = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_SHAPES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    }
)
_QUOTED = frozenset({"date", "time", "datetime", "timestamp", "year", "uuid", "inet4", "inet6"})
_UNICODE = ("utf8mb4", "utf8mb3", "utf8")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FLOAT = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_PLAIN = re.compile(r"[0-9A-Fa-f:. -]*")


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column. `kind`: its type without sizes; `is_virtual`: computed when it is read; `is_generated`: computed."""

    name: str
    kind: str
    whole_kind: str
    can_be_null: bool
    charset: str = ""
    collation: str = ""
    default: str = ""
    extra: str = ""
    generation: str = ""

    @property
    def is_generated(self) -> bool:
        return bool(self.generation)

    @property
    def is_virtual(self) -> bool:
        return self.is_generated and "VIRTUAL" in self.extra

    @property
    def counts_up(self) -> bool:
        return "auto_increment" in self.extra

    @property
    def is_known(self) -> bool:
        """Whether values of its type can be read and written exactly."""
        numbers = {"decimal", "float", "double", "bit", "enum", "set"}
        return self.kind in WHOLE | _TEXTS | _BYTES | _SHAPES | _QUOTED | numbers

    @property
    def is_unicode(self) -> bool:
        return self.kind in _TEXTS and self.charset in _UNICODE

    def reading(self, row: str = "") -> str:
        """SQL for its value in an image."""
        column = f"{row}.{quoted(self.name)}" if row else quoted(self.name)
        if self.kind in ("float", "double"):
            return f"CAST({column} AS DOUBLE)"
        if self.kind in ("enum", "set", "bit"):
            return f"{column} + 0"
        if self.kind in _BYTES | _SHAPES or (self.kind in _TEXTS and not self.is_unicode):
            return f"HEX({column})"
        return column

    def literal(self, value: Value) -> str:
        """SQL for a value out of an image.

        Raises:
            InputError: it is none of the type.
        """
        if value is None:
            return "NULL"
        if self.is_unicode:
            return f"_{self.charset} x'{value.encode().hex()}'"
        fits: re.Match[str] | bool | None
        if self.kind in _TEXTS | _BYTES | _SHAPES:
            before = f"_{self.charset} " if self.kind in _TEXTS else ""
            fits, text = re.fullmatch(r"([0-9A-F]{2})*", value), f"{before}x'{value}'"
        elif self.kind in ("float", "double"):
            fits, text = _FLOAT.fullmatch(value), f"CAST('{value}' AS DOUBLE)"
        elif self.kind in _QUOTED:
            fits, text = _PLAIN.fullmatch(value), f"'{value}'"
        else:
            fits, text = _NUMBER.fullmatch(value), value
        if not fits:
            raise InputError(f"column {self.name}: a value that was kept is none of the type {self.kind}")
        return text


def parameter(value: Parameter) -> str:
    """SQL for a value that is given beside a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return f"{int(value)}"
    if isinstance(value, int):
        return f"{value}" if value >= 0 else f"({value})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return f"_utf8mb4 x'{value.encode().hex()}'"


def key_in_words(values: Sequence[Value]) -> str:
    """A key as a text that no other key of the table has."""
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"))
    only = f"{values[0]}"
    return only if only and only[0] != '"' else json.dumps(only)
