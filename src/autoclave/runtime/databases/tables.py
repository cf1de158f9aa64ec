"""Tables of a database server as its catalogue describes them, and what changes with them. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autoclave.core import InputError
from autoclave.runtime.databases.places import name_of, place_of
from autoclave.runtime.databases.schema import Column, Reference, Table

Name = tuple[str, str]
"""Schema (empty: none said) and name, as a statement has them."""


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
    """What engines know of a table or view."""

    schema: str
    name: str
    kind: str
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def place(self) -> str:
        """`SCHEMA/NAME`."""
        return place_of(self.schema, self.name)

    @property
    @abstractmethod
    def is_view(self) -> bool:
        """True for what has no rows of its own."""

    @abstractmethod
    def told_columns(self) -> Iterable[Column]:
        """Its columns as a model may know them."""

    def as_table(self) -> Table:
        """The table as a model may know it."""
        references = tuple(Reference(each.columns, each.parent, each.target) for each in self.foreign_keys)
        return Table(self.name, tuple(self.told_columns()), self.key, self.unique, references, self.is_view)


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
            for place in self.parts(waiting.pop()) - found:
                found.add(place)
                waiting += [key.child for key in self.children.get(place, ()) if follows(key)]
        return found

    def parts(self, place: str) -> set[str]:
        """A table, with the partitions beside it where it is one or has some."""
        return {place}

    def find(self, name: Name, schemas: Sequence[str]) -> str | None:
        """The place of the table that a statement names; None: none of the schemas has it."""
        found = (place_of(schema, name[1]) for schema in ([name[0]] if name[0] else schemas))
        return next((place for place in found if place in self.tables), None)

    def known(self, name: Name, schemas: Sequence[str], number: int) -> str:
        """The place of the table that a statement names.

        Raises:
            InputError: none of the schemas has it.
        """
        if (place := self.find(name, schemas)) is None:
            named = ".".join(filter(None, name))
            raise InputError(f"statement {number}: there is no table {named} in the schemas {', '.join(schemas)}")
        return place

    def require_other_names(self, withs: Iterable[str], number: int) -> None:
        """Check that no name of a WITH is that of a table, which a statement would read elsewhere.

        Raises:
            InputError: one is.
        """
        if {each.lower() for each in withs} & {name_of(place).lower() for place in self.tables}:
            raise InputError(f"statement {number}: a name of its WITH is that of a table; take another")
