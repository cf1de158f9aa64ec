"""Tables as their catalogue describes them, their names, what changes with them, and what a model may know. Pure.

In grants, footprints and what is kept, tables are called `SCHEMA/NAME`, where a slash parts names, and `*` and `?` are
patterns. So these signs are written with percent signs where they are in a name itself: `main/a%2Fb` is the table
`a/b`.

A model is told columns, types and keys, and nothing that could be data of somebody: neither rows and how many there
are, nor defaults, conditions, labels of enumerations, comments, and what views are made of.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote

from autoclave.core import InputError

_ODD = re.compile(r"[%/*?\x00-\x1f\x7f]")
Name = tuple[str, str]
"""Schema (empty: none said) and name, as a statement has them."""


def place_of(schema: str, name: str) -> str:
    return f"{spelt(schema)}/{spelt(name)}"


def names_of(place: str) -> tuple[str, str]:
    """The schema and the name of what is called so."""
    schema, _, name = place.partition("/")
    return unquote(schema), unquote(name)


def name_of(place: str) -> str:
    """The name of what is called so, without its schema."""
    return names_of(place)[1]


def table_of(key: str) -> str:
    """The place of the table that a key (`SCHEMA/NAME` or `SCHEMA/NAME/ROW`) is about."""
    return "/".join(key.split("/")[:2])


def spelt(name: str) -> str:
    """A name as one part of a path."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return _ODD.sub(lambda found: f"%{ord(found[0]):02X}", name)


def quoted(*names: str, mark: str = '"') -> str:
    """Names as a statement has them."""
    return ".".join(mark + name.replace(mark, mark * 2) + mark for name in names)


class Column(NamedTuple):
    """A column. `fills_itself`: the database computes it, so it may be left out."""

    name: str
    kind: str
    can_be_null: bool
    fills_itself: bool


def _in_one_line(text: str) -> str:
    """A text in which a name can neither end the line nor hide."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key. `carries`: a change of the parent may change the child; `deletes`: it may delete rows of it."""

    name: str
    child: str
    columns: tuple[str, ...]
    parent: str
    target: tuple[str, ...]
    carries: bool
    deletes: bool
    is_deferrable: bool = True


@dataclass(frozen=True, kw_only=True)
class BaseTable(ABC):
    """A table or view as engines know it."""

    schema: str
    name: str
    kind: str
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def place(self) -> str:
        return place_of(self.schema, self.name)

    @property
    @abstractmethod
    def is_view(self) -> bool:
        """True for what has no rows of its own."""

    @abstractmethod
    def told_columns(self) -> Iterable[Column]:
        """Its columns as a model may know them."""

    def told(self) -> Iterator[str]:
        """Lines about it and what it has."""
        lines = [f"{'view' if self.is_view else 'table'} {'.'.join(names_of(self.place))}"]
        for column in self.told_columns():
            null, own = "" if column.can_be_null else " not null", " (fills itself)" if column.fills_itself else ""
            lines.append(f"  {column.name} {column.kind}{null}{own}")
        lines += [f"  primary key ({', '.join(self.key)})"] if self.key else []
        lines += [f"  unique ({', '.join(each)})" for each in self.unique]
        for each in self.foreign_keys:
            target = f"{'.'.join(names_of(each.parent))} ({', '.join(each.target)})"
            lines.append(f"  ({', '.join(each.columns)}) refers to {target}")
        return map(_in_one_line, lines)


T = TypeVar("T", bound=BaseTable)


@dataclass(frozen=True)
class BaseCatalogue(Generic[T]):
    """Tables and views by place, and the foreign keys that refer to each place."""

    tables: Mapping[str, T] = field(default_factory=dict)
    children: Mapping[str, Sequence[ForeignKey]] = field(default_factory=dict)

    def with_cascades(self, places: Iterable[str]) -> set[str]:
        """Tables, and all those that change when they do."""
        return self._reached(places, lambda key: key.carries)

    def _reached(self, places: Iterable[str], follows: Callable[[ForeignKey], bool]) -> set[str]:
        found, waiting = set[str](), list(places)
        while waiting:
            if (place := waiting.pop()) not in found:
                found.add(place)
                waiting += [key.child for key in self.children.get(place, ()) if follows(key)]
        return found

    def find(self, name: Name, schemas: Sequence[str]) -> str | None:
        """The place of the table that a statement names; None: none of the schemas has it."""
        found = (place_of(schema, name[1]) for schema in ([name[0]] if name[0] else schemas))
        return next((place for place in found if place in self.tables), None)

    def known(self, name: Name, schemas: Sequence[str], number: int) -> str:
        """The place of the table that a statement names. Raises InputError where none of the schemas has it."""
        if (place := self.find(name, schemas)) is None:
            named = ".".join(filter(None, name))
            raise InputError(f"statement {number}: there is no table {named} in the schemas {', '.join(schemas)}")
        return place

    def require_other_names(self, withs: Iterable[str], number: int) -> None:
        """Raise InputError if a name of a WITH is that of a table, which a statement would read elsewhere."""
        if {each.lower() for each in withs} & {name_of(place).lower() for place in self.tables}:
            raise InputError(f"statement {number}: a name of its WITH is that of a table; take another")
