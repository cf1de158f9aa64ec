"""What statements are about, by their text and the tables that there are, before they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, catalogue_of
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.parsing import Statement, parsed
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.databases.tables import Name, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Reading):
    """Statements, and the places that they are about.

    Attributes:
        catalogue: the tables that there are before they are run.
        emptied: tables that TRUNCATE names.
    """

    statements: tuple[Statement, ...]
    catalogue: Catalogue
    emptied: frozenset[str]

    @property
    def are_rows(self) -> bool:
        """Whether they change rows alone."""
        return all(each.kind == "rows" for each in self.statements)


def planned(connection: Any, server: Server, operation: Sql, mode: Mode) -> Planned:
    """What statements are about.

    Raises:
        InputError: one is refused, or cannot be taken back in this mode, or there is no such table.
    """
    schemas = server.schemas
    catalogue = catalogue_of(connection, schemas)
    statements = tuple(_parsed(operation, number, mode) for number in range(len(operation.statements)))
    defines = {_defined(name, number, schemas) for number, each in enumerate(statements, 1) for name in each.defines}

    def place(name: Name, number: int) -> str:
        found = catalogue.find(name, schemas)
        own = place_of(name[0] or schemas[0], name[1])
        return own if found is None and own in defines else catalogue.known(name, schemas, number)

    writes: dict[str, frozenset[str]] = {}
    reads: set[str] = set()
    emptied: set[str] = set()
    for number, each in enumerate(statements, 1):
        catalogue.require_other_names(each.withs, number)
        reads |= {place(name, number) for name in each.reads}
        for name, verbs in each.writes.items():
            target = place(name, number)
            writes[target] = writes.get(target, frozenset()) | verbs
            if each.kind == "rows":
                key = catalogue.tables[target].key if target in catalogue.tables else ()
                rows = named_rows(operation.statements[number - 1], operation.values_of(number - 1), "postgres", key)
                reads |= {target} if rows is None else {f"{target}/{as_name(row)}" for row in rows}
            else:
                emptied.add(target)
    for each in sorted(catalogue.with_cascades(writes) & catalogue.tables.keys()):
        if refusal := catalogue.tables[each].refusal:
            raise InputError(f"table {each}: {refusal}")
    return Planned(
        statements=statements,
        catalogue=catalogue,
        writes=writes,
        reads=frozenset(reads),
        defines=frozenset(defines),
        emptied=frozenset(emptied),
    )


def _parsed(operation: Sql, number: int, mode: Mode) -> Statement:
    each, where = parsed(operation.statements[number], number + 1), f"statement {number + 1}"
    if operation.values_of(number) and each.kind != "rows":
        raise InputError(f"{where}: values beside it are for statements on rows; write them into it")
    if each.kind != "rows" and mode is not Mode.TRANSACTION:
        raise InputError(
            f'{where}: changes more than rows, which mode "images" cannot undo. Fix: use mode "transaction"'
        )
    return each


def _defined(name: Name, number: int, schemas: Sequence[str]) -> str:
    """The place of something that a statement defines.

    Raises:
        InputError: it is in none of the schemas that may be used.
    """
    schema = name[0] or schemas[0]
    if schema not in schemas:
        raise InputError(f"statement {number}: {schema}.{name[1]} is in none of the schemas {', '.join(schemas)}")
    return place_of(schema, name[1])
