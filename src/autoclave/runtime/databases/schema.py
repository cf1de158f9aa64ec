"""Tables as a model may know them: columns, types, keys, and nothing that could be data of somebody. Pure.

Left out on purpose: rows and how many there are, defaults, conditions, labels of enumerations, comments, and what views
are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autoclave.runtime.databases.places import names_of


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `fills_itself`: the database computes it, so it may be left out."""

    name: str
    kind: str
    can_be_null: bool = True
    fills_itself: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: columns, and what they refer to (`SCHEMA/NAME` and columns)."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table or a view. `key`: the columns of its primary key."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables by `SCHEMA/NAME`."""

    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])

    def told(self) -> Iterator[str]:
        """A line for each table and what it has."""
        for place, table in sorted(self.tables.items()):
            yield from map(_in_one_line, self._lines(place, table))

    def _lines(self, place: str, table: Table) -> Iterator[str]:
        yield f"{'view' if table.is_view else 'table'} {'.'.join(names_of(place))}"
        for column in table.columns:
            null = "" if column.can_be_null else " not null"
            own = " (fills itself)" if column.fills_itself else ""
            yield f"  {column.name} {column.kind}{null}{own}"
        if table.key:
            yield f"  primary key ({', '.join(table.key)})"
        for columns in table.unique:
            yield f"  unique ({', '.join(columns)})"
        for each in table.references:
            target = ".".join(names_of(each.table))
            yield f"  ({', '.join(each.columns)}) refers to {target} ({', '.join(each.target)})"


def _in_one_line(text: str) -> str:
    """A text in which a name can neither end the line nor hide."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
