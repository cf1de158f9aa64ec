"""One MariaDB database as an engine of databases.

Theory of operation. `user` of the settings may do no more than change rows of `schemas`, and see their triggers. What
is proposed runs in one serializable transaction, in which the rows that it changes are locked and read before and after
(`rows`). Nothing that would end that transaction is let through (`parsing`). Rows are written back without the
server looking at foreign keys, which we look at ourselves (`rows`). Whether a transaction was committed is told by the
rows themselves, since all of them were written at once or none; they are locked for that look, so that one which is
still under way is waited for. Nothing of ours is in the database between two transactions.

What cannot be seen is not let through: triggers, views (they may call functions that write), engines other than InnoDB,
tables with a history of their own, and foreign keys from schemas that are not the session's.
"""

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import pymysql

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import NUM_KEYS, Effect, TableEffect, as_name
from autoclave.runtime.databases.engine import FoundRows, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts, catalogue_of
from autoclave.runtime.databases.mariadb.connection import Server, do, number_of, rows, told
from autoclave.runtime.databases.mariadb.parsing import Statement, parsed
from autoclave.runtime.databases.mariadb.rows import Recorder, Rows
from autoclave.runtime.databases.mariadb.values import WHOLE
from autoclave.runtime.databases.operations import Sql, named_rows
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.tables import Name
from autoclave.runtime.interface import InDoubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Reading):
    """Statements, and the places that they are about. `places`: the table that each statement writes."""

    statements: list[Statement]
    places: list[str]


def planned(catalogue: Catalogue, server: Server, operation: Sql) -> Planned:
    """Return what statements are about; raise InputError if one is refused, or its changes could not be undone."""

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
                    f"statement {number}: {place} is not a table, and may call functions that write unseen; name the "
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
    """Return why it could not be seen what changes with a table, or not be taken back; empty if it can."""
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


_TRIES = 3
_REFUSED_ROWS = (1062, 1451, 1452, 1048, 4025, 1364, 1906, 1292, 1366)


class MariaDatabase(Server):
    """See `Engine`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        super().__init__(name, settings, password)
        self._catalogue: Catalogue | None = None

    def catalogue_of(self, connection: Any) -> Catalogue:
        return catalogue_of(connection, self.schemas)

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self.looking() as connection:
            self._catalogue = self.catalogue_of(connection)
        return planned(self._catalogue, self, operation)

    def _locked(self, connection: Any, places: Callable[[Catalogue], Collection[str]]) -> Catalogue:
        """Return what is there, with tables that cannot be altered until the transaction ends."""
        for _ in range(_TRIES):
            known = self._catalogue or self.catalogue_of(connection)
            for place in sorted(known.with_cascades(places(known)) & known.tables.keys()):
                with contextlib.suppress(pymysql.err.ProgrammingError):  # there is no such table any more
                    rows(connection, f"SELECT 1 FROM {known.tables[place].quoted} LIMIT 0")
            self._catalogue = self.catalogue_of(connection)
            if self._catalogue == known:
                return known
        raise HostError(f"{self.where}: tables are being altered. Fix: try again")

    @contextlib.contextmanager
    def running(self, operation: Sql, mode: Mode) -> Generator[tuple[Any, Effect]]:
        with self.transaction() as connection:
            yield connection, self._run(connection, operation)

    def run_open(self, connection: Any, operation: Sql) -> tuple[Effect, Json]:
        do(connection, f"SET SESSION idle_transaction_timeout = {ceil(self.settings.transaction_timeout_s)}")
        self.begin(connection)
        return self._run(connection, operation), {}

    def _run(self, connection: Any, operation: Sql) -> Effect:
        """Run statements in the transaction that is open; what they did."""
        catalogue = self._locked(connection, lambda known: planned(known, self, operation).writes)
        plan, tables = planned(catalogue, self, operation), catalogue.tables
        recorder, draws = Recorder(connection, catalogue, self.settings.max_rows), False
        for number, (each, place) in enumerate(zip(plan.statements, plan.places, strict=True), 1):
            rows(connection, "SELECT LAST_INSERT_ID(0)")
            try:
                recorder.run(each, tables[place])
            except InputError as error:
                raise InputError(f"statement {number}: {error}") from None
            draws |= rows(connection, "SELECT LAST_INSERT_ID()") != [("0",)]
        effects = tuple(recorder.table_effects())
        created = {each.table for each in effects if each.counts.get("create")}
        created |= {place for place, verbs in plan.writes.items() if "create" in verbs}
        gaps = [place for place in sorted(created) if any(each.counts_up for each in tables[place].columns)]
        return self.require_few(
            Effect(
                effects,
                reads=plan.reads | {*_parents(Rows(connection, catalogue, locks=False), effects, catalogue)},
                side_effects=tuple(map(_GAP.format, gaps)),
                is_deterministic=not draws
                and all(each.is_deterministic for each in plan.statements)
                and not any(tables[each.table].fills_by_clock for each in effects),
            )
        )

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the rows tell. Where the transaction still goes on, it has locked them, and is waited for."""
        try:
            with self.transaction() as connection:
                found = Rows(connection, self.catalogue_of(connection))
                is_before, is_after = found.conflicting(effect), found.conflicting(effect.inverse())
        except HostError as error:
            raise InDoubt(f"{error}") from None
        return effect.has_come_true(self.where, is_before, is_after)

    def conflicting(self, effect: Effect) -> FoundRows:
        with self.looking() as connection:
            return Rows(connection, self.catalogue_of(connection), locks=False).conflicting(effect)

    def write(self, effect: Effect, keep: Keep) -> None:
        with self.transaction(is_exact=True) as connection:
            places = {each.table for each in effect.tables}
            there = Rows(connection, self._locked(connection, lambda known: known.tables.keys() & places))
            if conflicting := there.conflicting(effect):
                raise RowConflict.over(self.name, conflicting)
            try:
                there.write(effect)
            except pymysql.Error as error:
                if number_of(error) not in _REFUSED_ROWS:
                    raise
                raise Rejected(f"{self.where}: what others did since stands against it: {told(error)}") from None
            keep(effect, {})
            self.commit(connection)


def open_database(name: str, connection: DatabaseConnection, password: str) -> MariaDatabase:
    if connection.role:
        raise InputError(f"database {name}: role: a role of MariaDB only adds to the rights of its user; name a user")
    return MariaDatabase(name, connection, password)


_GAP = "AUTO_INCREMENT of {} may have given numbers that it does not give again: a gap stays, also of planning"


def _parents(there: Rows, effects: Iterable[TableEffect], catalogue: Catalogue) -> Iterator[str]:
    """Rows that those that came refer to, as far as the reference is to a key; else their tables."""
    for effect in effects:
        table = catalogue.tables[effect.table]
        for each in table.foreign_keys:
            parent = catalogue.tables.get(each.parent)
            if parent is None or parent.key != each.target or len(effect.added) > NUM_KEYS:
                yield each.parent
                continue
            values = (table.literals(image, each.columns) for image in effect.added)
            for key, _ in there.matching(parent, parent.key, values):
                yield f"{each.parent}/{as_name(key)}"
