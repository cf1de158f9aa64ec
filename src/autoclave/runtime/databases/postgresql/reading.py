"""What statements are about, by their text and the tables that there are, before they are run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of, place_of
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, catalogue_of
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.functions import are_settled, require_harmless
from autoclave.runtime.databases.postgresql.parsing import Name, Statement, parsed
from autoclave.runtime.databases.postgresql.role import require_no_values
from autoclave.runtime.databases.settings import Mode


class Reader:
    """Of the statements on one database."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def read(self, connection: Any, operation: Sql, mode: Mode) -> Reading:
        """See `Engine.read`."""
        statements = self.parsed(connection, operation, mode)
        catalogue = catalogue_of(connection, self._server.schemas)
        defines = {self.defined(name, n) for n, each in enumerate(statements, start=1) for name in each.defines}
        writes: dict[str, frozenset[str]] = {}
        reads: set[str] = set()
        for number, each in enumerate(statements):
            for name, verbs in each.writes.items():
                place = self._known(catalogue, name, number, defines)
                writes[place] = writes.get(place, frozenset()) | verbs
            reads |= self.reads(operation, number, each, catalogue, defines)
        is_settled = all(
            are_settled(each.functions) and not (each.asks_clock or each.names_moments) for each in statements
        )
        return Reading(writes, frozenset(reads), frozenset(defines), is_settled)

    def parsed(self, connection: Any, operation: Sql, mode: Mode) -> list[Statement]:
        """What each statement is about.

        Raises:
            InputError: one is refused, or cannot be taken back in this mode.
        """
        found: list[Statement] = []
        for number, text in enumerate(operation.statements, start=1):
            each = parsed(text, number)
            require_harmless(connection, each.functions, self._server.settings.functions, number)
            require_no_values(each, operation.values_of(number - 1), number)
            _require_own_names(connection, each, number)
            if each.is_code and not self._server.settings.allows_code:
                raise InputError(
                    f"statement {number}: is refused: functions, triggers, rules and policies run in the actions of "
                    "others; `allows_code` in the settings permits them to be changed"
                )
            if each.kind == "define" and each.made is None and mode is not Mode.HOLD:
                raise InputError(
                    f'statement {number}: defines what images of rows do not hold; mode "hold" takes it back'
                )
            found.append(each)
        return found

    def place(self, catalogue: Catalogue, name: Name) -> str:
        """What the rows of a table that a statement names are told as."""
        found = catalogue.find(*name, self._server.schemas)
        return catalogue.whole(found.place) if found else place_of(name[0] or self._server.schemas[0], name[1])

    def defined(self, name: Name, number: int) -> str:
        """The place of something that a statement defines.

        Raises:
            InputError: it is in none of the schemas that may be used.
        """
        schema = name[0] or self._server.schemas[0]
        if schema not in self._server.schemas:
            known = ", ".join(self._server.schemas)
            raise InputError(f"statement {number}: {schema}.{name[1]} is in none of the schemas {known}")
        return place_of(schema, name[1])

    def _known(self, catalogue: Catalogue, name: Name, number: int, defines: Collection[str]) -> str:
        """The place of a table that a statement names.

        Raises:
            InputError: it is in none of the schemas that may be used.
        """
        place = self.place(catalogue, name)
        if place not in catalogue.tables and place not in defines:
            named = ".".join(filter(None, name))
            raise InputError(
                f"statement {number + 1}: there is no table {named} in the schemas {', '.join(self._server.schemas)}"
            )
        return place

    def reads(
        self, operation: Sql, number: int, statement: Statement, catalogue: Catalogue, defines: Collection[str]
    ) -> set[str]:
        """What a statement depends on: rows that it names by their keys, else tables."""
        found = {self._known(catalogue, name, number, defines) for name in statement.reads}
        if statement.withs & {name_of(place) for place in catalogue.tables}:
            raise InputError(f"statement {number + 1}: a name of its WITH is that of a table; take another")
        for name in statement.writes if statement.kind == "rows" else ():
            place = self.place(catalogue, name)
            table = catalogue.tables.get(place)
            key = table.key if table else ()
            rows = named_rows(operation.statements[number], operation.values_of(number), "postgres", key)
            found |= {place} if rows is None else {f"{place}/{as_name(row)}" for row in rows}
        return found

    def require_none_outside(self, connection: Any, catalogue: Catalogue, emptied: Collection[str]) -> None:
        """Look that no table of another schema refers to those that are truncated: it would be emptied unheard.

        Raises:
            InputError: one does.
        """
        oids = [catalogue.tables[place].oid for place in emptied]
        known = [table.oid for table in catalogue.tables.values()]
        query = (
            "SELECT 1 FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = ANY (%s) "
            "AND conrelid <> ALL (%s) LIMIT 1"
        )
        if oids and connection.execute(query, (oids, known)).fetchone():
            raise InputError(
                f"{self._server.where}: a table outside of its schemas refers to what would be truncated. Fix: DELETE"
            )


def _require_own_names(connection: Any, statement: Statement, number: int) -> None:
    """Look that no name is that of a relation of pg_catalog, which the server would take it for, whatever is made.

    Raises:
        InputError: one is.
    """
    places = (*statement.writes, *statement.reads, *statement.defines)
    names = [*statement.withs, *(name for schema, name in places if not schema)]
    query = (
        "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::pg_catalog.regnamespace "
        "AND relname = ANY (%s) LIMIT 1"
    )
    if found := connection.execute(query, (names,)).fetchone():
        told = f"there is no table {found[0]} that may be used: it is a name of PostgreSQL's own catalogue"
        raise InputError(f"statement {number}: {told}; take another")
