"""What statements on MariaDB are about, by their text and the tables that there are, before they are run. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from autoclave.core import InputError
from autoclave.runtime.databases.effects import as_name
from autoclave.runtime.databases.engine import Reading
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts
from autoclave.runtime.databases.mariadb.connection import Server
from autoclave.runtime.databases.mariadb.parsing import Statement, parsed
from autoclave.runtime.databases.mariadb.values import WHOLE
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.tables import Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Reading):
    """Statements, and the places that they are about. `places`: the table that each statement writes."""

    statements: list[Statement]
    places: list[str]


def planned(catalogue: Catalogue, server: Server, operation: Sql) -> Planned:
    """What statements are about.

    Raises:
        InputError: one is refused, or there is no such table, or what changes could not be seen and taken back.
    """

    def known(name: Name, number: int) -> str:
        return catalogue.known((name[0] or server.schemas[0], name[1]), server.schemas, number)

    statements = [parsed(text, operation.values_of(n), n + 1) for n, text in enumerate(operation.statements)]
    places: list[str] = []
    writes: dict[str, frozenset[str]] = {}
    reads: set[str] = set()
    for number, each in enumerate(statements, 1):
        catalogue.require_other_names(each.withs, number)
        for place in (known(name, number) for name in each.reads):
            if catalogue.tables[place].is_view:
                raise InputError(
                    f"statement {number}: {place} is no table, and may call functions that write unseen; name the "
                    "tables that it is made of"
                )
            reads.add(place)
        place = known(each.table, number)
        places.append(place)
        writes[place] = writes.get(place, frozenset()) | each.verbs
        table = catalogue.tables[place]
        is_plain = len(table.key) == 1 and table.stored[table.places[table.key[0]]].kind in WHOLE
        keys = named_rows(each.text, (), "mysql", table.key if is_plain else ())
        reads |= {place} if keys is None else {f"{place}/{as_name(key)}" for key in keys}
    for place in sorted(catalogue.with_cascades(writes)):
        if wrong := _wrong(catalogue.tables.get(place), catalogue, place):
            raise InputError(f"{server.where}: table {place}: {wrong}")
    return Planned(statements=statements, places=places, writes=writes, reads=frozenset(reads))


def _wrong(table: TableFacts | None, catalogue: Catalogue, place: str) -> str:
    """Why it could not be seen what changes with a table, or not be taken back; empty if it can."""
    if table is None:
        return "would change too, and is in another schema"
    elsewhere = [key.child for key in catalogue.children.get(place, ()) if key.child not in catalogue.tables]
    if elsewhere:
        return f"{elsewhere[0]}, in another schema, refers to it"
    if table.kind != "BASE TABLE":
        return f"is a {table.kind.lower()}, rows of which are not kept"
    if table.engine != "InnoDB":
        return f"engine {table.engine} knows no transactions. Fix: ALTER TABLE ... ENGINE = InnoDB"
    if table.triggers:
        return f"what its triggers ({', '.join(table.triggers)}) change is not seen"
    odd = [f"column {each.name}: type {each.kind} is not known" for each in table.columns if not each.is_known]
    return "".join(odd[:1])
