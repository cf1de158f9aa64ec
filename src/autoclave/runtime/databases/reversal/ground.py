"""Where reverse statements are tried out: empty copies of a schema, apart from the database and from any network.

A ground knows one schema, as the database itself tells it. A world on it starts without rows, is filled, and thrown
away. How grounds of an engine are opened is found here, by the engine's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol, cast

from autoclave.core import InputError
from autoclave.core.plugins import find_plugin, plugin_names
from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection

GROUP = "autoclave.reversals"
"""Entry points: what is such as `Reversals`."""
_OWN = {
    "sqlite": "autoclave.runtime.databases.reversal.sqlite",
    "postgresql": "autoclave.runtime.databases.reversal.postgresql",
    "mariadb": "autoclave.runtime.databases.reversal.mariadb",
}

_WORD = re.compile(r"\w+")

Value = str | int | float | bool | bytes | None
Content = Mapping[str, tuple[str, ...]]
"""All rows of all tables, each as a text that says all of it, in order."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows must be like.

    Attributes:
        schema: tables, by `SCHEMA/NAME`.
        labels: values of enumerated types, by the type's name.
        texts: what conditions, triggers and views are made of: values that matter are in them.
        dialect: of the texts, in sqlglot's words.
        folded: columns, by table, in which texts are the same whatever their case and the spaces at their ends.
    """

    schema: Schema
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    texts: tuple[str, ...] = ()
    dialect: str = "sqlite"
    folded: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


class World(Protocol):
    """One copy."""

    def insert(self, table: str, row: Mapping[str, Value]) -> bool:
        """Put a row into it; whether its constraints permit that."""
        ...

    def refer(self, table: str, key: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        """Set references of a row that could not be set before; nothing if its constraints do not permit that."""
        ...

    def settle(self) -> None:
        """It is filled: from now on everything is as it is in the database."""
        ...

    def run(self, operation: Sql) -> None:
        """Do statements in one transaction, as the database would do them for an action.

        Raises:
            InputError: they fail, and nothing was done.
        """
        ...

    def content(self) -> Content:
        """What is in the tables, and (under names without a slash) what they are made of."""
        ...

    def counters(self) -> Mapping[str, object]:
        """Where counters and sequences stand."""
        ...


class Ground(Protocol):
    """The schema of one database, as it was when it was opened."""

    shape: Shape

    def world(self) -> AbstractContextManager[World]:
        """A world without rows."""
        ...

    def close(self) -> None:
        """Leave nothing."""
        ...


class Reversals(Protocol):
    """What an engine offers for undo by statements: a module, or any object with these functions."""

    def open_ground(self, name: str, connection: DatabaseConnection, password: str) -> Ground:
        """The ground of a database, by its name, its settings and its password.

        Raises:
            InputError: the schema cannot be made again elsewhere.
            HostError: the database does not answer, or something is not installed.
        """
        ...

    def outline(self, image: Image) -> Image:
        """An image without what statements need not bring back, such as a number of a row that no column holds."""
        ...


def reversals_of(name: str, kind: str) -> Reversals:
    """What the engine of a database offers for undo by statements.

    Raises:
        InputError: nothing.
    """
    if kind in _OWN:
        return cast("Reversals", import_module(_OWN[kind]))
    if kind in plugin_names(GROUP):
        return find_plugin(GROUP, kind, f"database {name}: engine")
    raise InputError(
        f"database {name}: undo: reverse statements cannot be tested for {kind}; leave them out, and rows are kept"
    )


def changed_tables(before: Content, after: Content) -> list[str]:
    """What is not the same in both."""
    names: Iterable[str] = {**before, **after}
    return [name for name in names if before.get(name) != after.get(name)]


def parents_first(schema: Schema, wanted: Collection[str]) -> list[str]:
    """Tables in an order in which, but for circles, each comes after those that it refers to."""
    found: list[str] = []

    def visit(place: str, above: frozenset[str]) -> None:
        if place in found or place in above or place not in wanted:
            return
        for reference in schema.tables[place].references:
            visit(reference.table, above | {place})
        found.append(place)

    for place in sorted(wanted):
        visit(place, frozenset())
    return found


def concerned(shape: Shape, statements: Iterable[str]) -> set[str]:
    """Tables that statements name, and all that hang together with them by references, triggers and views."""
    by_name = {name_of(place).lower(): place for place in shape.schema.tables}

    def named(text: str) -> set[str]:
        return {word.lower() for word in _WORD.findall(text)} & by_name.keys()

    groups = [names for text in shape.texts if len(names := named(text)) > 1]
    for place, table in shape.schema.tables.items():
        groups += [{name_of(place).lower(), name_of(r.table).lower()} for r in table.references]
    found = {name for text in statements for name in named(text)}
    is_growing = True
    while is_growing:
        more = {name for group in groups if group & found for name in group} | found
        is_growing, found = more != found, more
    return {by_name[name] for name in found if name in by_name}
