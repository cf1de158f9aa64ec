"""One MariaDB database as an engine of databases.

Theory of operation. `user` of the settings may do no more than change rows of `schemas`, and see their triggers. What
is proposed runs in one serializable transaction, in which the rows that it changes are locked and read before and after
(`recorder`). Nothing that would end that transaction is let through (`parsing`). Rows are written back without the
server looking at foreign keys, which we look at ourselves (`rows`). Whether a transaction was committed is told by the
rows themselves, since all of them were written at once or none; they are locked for that look, so that one which is
still under way is waited for. Nothing of ours is in the database between two transactions, but for a held one that is
prepared (`holding`).

What cannot be seen is not let through: triggers, views (they may call functions that write), engines other than InnoDB,
tables with a history of their own, and foreign keys from schemas that are not the session's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.runtime.databases.effects import NUM_KEYS, Effect, Image, TableEffect, as_name, without_collection
from autoclave.runtime.databases.engine import Contested, Held, Json, Keep, Reading, Rejected
from autoclave.runtime.databases.limits import require_limits
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts, catalogue_of
from autoclave.runtime.databases.mariadb.connection import Server, rows
from autoclave.runtime.databases.mariadb.counters import Counters
from autoclave.runtime.databases.mariadb.failures import number_of, words
from autoclave.runtime.databases.mariadb.holding import Holding
from autoclave.runtime.databases.mariadb.parsing import Name, Statement, parsed
from autoclave.runtime.databases.mariadb.recorder import Recorder
from autoclave.runtime.databases.mariadb.rows import Rows
from autoclave.runtime.databases.mariadb.values import WHOLE
from autoclave.runtime.databases.operations import Sql, in_statement
from autoclave.runtime.databases.places import name_of, place_of, table_of
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_TRIES = 3
_REFUSED_ROWS = (1062, 1451, 1452, 1048, 4025, 1364, 1906, 1292, 1366)


@dataclass(frozen=True, slots=True)
class _Planned:
    """Statements, with the tables that they write, in the order in which they stand."""

    statements: list[Statement]
    places: list[list[str]]
    catalogue: Catalogue


class MariaDatabase:
    """See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.HOLD})

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self._name, self._settings = name, settings
        self._server = Server(name, settings, password)
        self._holding = Holding(self._server)
        self._catalogue: Catalogue | None = None

    @property
    def _where(self) -> str:
        return self._server.where

    def close(self) -> None:
        self._holding.close()
        self._server.close()

    # --- Looking ----------------------------------------------------------------------------------------------------

    def schema(self) -> Schema:
        with self._server.looking() as connection:
            tables = catalogue_of(connection, self._server.schemas).tables
        return Schema({place: table.as_table() for place, table in tables.items()})

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self._server.looking() as connection:
            planned = self._planned(connection, operation, mode)
        writes: dict[str, frozenset[str]] = {}
        for each, places in zip(planned.statements, planned.places, strict=True):
            for place, verbs in zip(places, each.writes.values(), strict=True):
                writes[place] = writes.get(place, frozenset()) | verbs
        is_settled = all(each.is_settled for each in planned.statements)
        return Reading(writes, frozenset(self._reads(planned)), is_settled=is_settled)

    def _planned(self, connection: Any, operation: Sql, mode: Mode) -> _Planned:
        """Statements with what they are about, as far as is known; see `_locked`."""
        if self._catalogue is not None:
            with contextlib.suppress(InputError):  # it may be about what is new
                return self._planned_by(self._catalogue, operation, mode)
        self._catalogue = catalogue_of(connection, self._server.schemas)
        return self._planned_by(self._catalogue, operation, mode)

    def _locked(self, connection: Any, places: Callable[[Catalogue], Collection[str]]) -> Catalogue:
        """What is there, after some tables cannot be altered any more until the transaction ends.

        Raises:
            HostError: they are altered all the time.
        """
        for _ in range(_TRIES):
            known = self._catalogue or catalogue_of(connection, self._server.schemas)
            for place in sorted(known.with_cascades(places(known)) & known.tables.keys()):
                with contextlib.suppress(_no_such_table()):
                    rows(connection, f"SELECT 1 FROM {known.tables[place].quoted} LIMIT 0")
            self._catalogue = catalogue_of(connection, self._server.schemas)
            if self._catalogue == known:
                return known
        raise HostError(f"{self._where}: tables are being altered. Fix: try again")

    def _planned_by(self, catalogue: Catalogue, operation: Sql, mode: Mode) -> _Planned:
        statements = [
            parsed(text, operation.values_of(number), number + 1) for number, text in enumerate(operation.statements)
        ]
        places = [
            [self._known(catalogue, name, number) for name in each.writes] for number, each in enumerate(statements)
        ]
        for number, each in enumerate(statements):
            if each.withs & {name_of(place).lower() for place in catalogue.tables}:
                raise InputError(f"statement {number + 1}: a name of its WITH is that of a table; take another")
            for name in each.reads:
                table = catalogue.tables[self._known(catalogue, name, number)]
                if table.is_view and not (mode is Mode.HOLD and self._settings.allows_code):
                    raise InputError(
                        f"statement {number + 1}: {table.place} is no table, and may call functions that write unseen; "
                        "name the tables that it is made of"
                    )
        self._require_seen(catalogue, {place for some in places for place in some}, mode)
        return _Planned(statements, places, catalogue)

    def _known(self, catalogue: Catalogue, name: Name, number: int) -> str:
        """The place of a table that a statement names.

        Raises:
            InputError: it is in none of the schemas that may be used.
        """
        place = place_of(name[0] or self._server.schemas[0], name[1])
        if place not in catalogue.tables:
            named = ".".join(filter(None, name))
            raise InputError(
                f"statement {number + 1}: there is no table {named} in the schemas {', '.join(self._server.schemas)}"
            )
        return place

    def _require_seen(self, catalogue: Catalogue, written: Collection[str], mode: Mode) -> None:
        """Check that all that changes with some tables can be seen, and taken back.

        Raises:
            InputError: it cannot.
        """
        for place in sorted(catalogue.with_cascades(written)):
            table = catalogue.tables.get(place)
            if table is None:
                raise InputError(f"{self._where}: table {place}: would change too, and is in another schema")
            if elsewhere := [
                key.child for key in catalogue.children.get(place, ()) if key.child not in catalogue.tables
            ]:
                raise InputError(f"{self._where}: table {place}: {elsewhere[0]}, in another schema, refers to it")
            if table.kind != "BASE TABLE":
                raise InputError(f"{self._where}: table {place}: is a {table.kind.lower()}, rows of which are not kept")
            if table.engine != "InnoDB":
                raise InputError(
                    f"{self._where}: table {place}: engine {table.engine} knows no transactions, so nothing is taken "
                    "back. Fix: ALTER TABLE ... ENGINE = InnoDB"
                )
            if table.triggers and not (mode is Mode.HOLD and self._settings.allows_code):
                raise InputError(
                    f"{self._where}: table {place}: what its triggers ({', '.join(table.triggers)}) change is not "
                    'seen; mode "hold" takes it back, where `allows_code` in the settings permits it'
                )
            if odd := [each for each in table.columns if not each.is_known]:
                raise InputError(f"{self._where}: table {place}: column {odd[0].name}: type {odd[0].kind} is not known")

    def _reads(self, planned: _Planned) -> Iterator[str]:
        """What statements depend on: rows that they name by their keys, else tables."""
        for number, (each, places) in enumerate(zip(planned.statements, planned.places, strict=True)):
            for name in each.reads:
                yield self._known(planned.catalogue, name, number)
            for place in places:
                table = planned.catalogue.tables[place]
                is_plain = len(table.key) == 1 and table.stored[table.places[table.key[0]]].kind in WHOLE
                keys = named_rows(each.text, (), "mysql", table.key if is_plain else ())
                yield from [place] if keys is None else [f"{place}/{as_name(key)}" for key in keys]

    def lease(self, tables: Collection[str]) -> None:
        for place in sorted({table_of(table) for table in tables}):
            if not self._server.lease(place):
                raise InputError(f"{self._where}: another session works on table {place}; wait for it, or end it")

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode, planned: Effect | None = None) -> Effect:
        with without_collection(), self._server.transaction() as connection:
            return self._run(connection, operation, mode)

    def perform(self, operation: Sql, keep: Keep, planned: Effect | None = None) -> None:
        with without_collection(), self._server.transaction() as connection:
            keep(self._run(connection, operation, Mode.IMAGES), {})
            self._server.commit(connection)

    def _run(self, connection: Any, operation: Sql, mode: Mode) -> Effect:
        """Run statements in the transaction that is open; what they did."""
        self._locked(
            connection,
            lambda _: {place for some in self._planned(connection, operation, mode).places for place in some},
        )
        planned = self._planned(connection, operation, mode)
        catalogue = planned.catalogue
        places = sorted(catalogue.with_cascades({place for some in planned.places for place in some}))
        recorder = Recorder(connection, catalogue, self._settings.max_rows)
        counters = Counters(connection, [catalogue.tables[place] for place in _filled(planned)])
        for number, (each, written) in enumerate(zip(planned.statements, planned.places, strict=True)):
            with in_statement(number + 1):
                recorder.run(each, catalogue.tables[written[0]], written)
            counters.look(catalogue.tables[written[0]])
        effects = list(recorder.table_effects())
        drawn = counters.drawn | _counted_on(planned, effects)
        effect = Effect(
            tuple(effects),
            reads=frozenset(
                {*self._reads(planned), *_parents(Rows(connection, catalogue, locks=False), effects, catalogue)}
            ),
            leaks=(*map(_gap, sorted(drawn | counters.moved())), *_blind(catalogue, places)),
            is_settled=not drawn
            and all(each.is_settled for each in planned.statements)
            and not any(catalogue.tables[each.table].fills_by_clock for each in effects),
        )
        require_limits(
            self._where, effect, self._settings, lambda place: self._num_left(connection, catalogue.tables[place])
        )
        return effect

    def _num_left(self, connection: Any, table: TableFacts) -> int:
        return int(rows(connection, f"SELECT count(*) FROM {table.quoted}")[0][0])

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the rows tell. Where the transaction still goes on, it has locked them, and is waited for."""
        try:
            with self._server.transaction() as connection:
                found = Rows(connection, catalogue_of(connection, self._server.schemas))
                is_before, is_after = found.contested(effect), found.contested(effect.inverse())
        except HostError as error:
            raise InDoubt(f"{error}") from None
        if (told := effect.has_come_true(is_before, is_after)) is None:
            raise InDoubt(f"{self._where}: others have changed all that would tell whether it was committed")
        return told

    def contested(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with without_collection(), self._server.looking() as connection:
            return Rows(connection, catalogue_of(connection, self._server.schemas), locks=False).contested(effect)

    def write(self, effect: Effect, keep: Keep) -> None:
        with without_collection(), self._server.transaction(is_exact=True) as connection:
            catalogue = self._locked(
                connection, lambda known: known.tables.keys() & {each.table for each in effect.tables}
            )
            there = Rows(connection, catalogue)
            if contested := there.contested(effect):
                raise Contested.over(self._name, contested)
            self._written(there, effect)
            keep(effect, {})
            self._server.commit(connection)

    def _written(self, there: Rows, effect: Effect) -> None:
        import pymysql

        try:
            there.write(effect)
        except pymysql.Error as error:
            if number_of(error) not in _REFUSED_ROWS:
                raise
            raise Rejected(f"{self._where}: what others did since stands against it: {words(error)}") from None

    # --- Holding ----------------------------------------------------------------------------------------------------

    def hold(self, action: str, operation: Sql, keep: Keep) -> None:
        found: list[Effect] = []
        with without_collection():
            self._holding.hold(
                action,
                lambda connection: found.append(self._run(connection, operation, Mode.HOLD)),
                lambda mark: keep(found[0], mark),
            )

    def held(self, action: str, mark: Json) -> Held:
        if self._holding.is_open(action):
            return Held(True, waiting=self._holding.waiting(mark))
        return Held(False, self._holding.ended(action))

    def end_hold(self, action: str, *, commit: bool) -> None:
        self._holding.end(action, commit=commit)


def open_database(name: str, connection: DatabaseConnection, password: str) -> MariaDatabase:
    """See `Open`."""
    try:
        import pymysql  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise HostError(f"database {name}: MariaDB needs {error.name}. Fix: {install_command('databases')}") from None
    if not connection.dbname:
        raise InputError(f"database {name}: engine mariadb needs dbname")
    if connection.role:
        raise InputError(f"database {name}: role: a role of MariaDB only adds to the rights of its user; name a user")
    return MariaDatabase(name, connection, password)


def _no_such_table() -> type[Exception]:
    import pymysql

    return pymysql.err.ProgrammingError


def _counted_on(planned: _Planned, effects: Iterable[TableEffect]) -> set[str]:
    """Tables for which AUTO_INCREMENT gave numbers, or may have."""
    created = {each.table for each in effects if each.counts.get("create")}
    found: set[str] = set()
    for each, places in zip(planned.statements, planned.places, strict=True):
        counter = planned.catalogue.tables[places[0]].counter
        if each.verb in ("insert", "replace") and counter and counter.lower() not in map(str.lower, each.columns):
            found.add(places[0])
    return found & created


def _filled(planned: _Planned) -> set[str]:
    """Tables that rows are put into."""
    pairs = zip(planned.statements, planned.places, strict=True)
    return {places[0] for each, places in pairs if each.verb in ("insert", "replace")}


def _gap(place: str) -> str:
    return f"AUTO_INCREMENT of {place} has given numbers that it does not give again: a gap stays, also of planning"


def _blind(catalogue: Catalogue, places: Iterable[str]) -> Iterator[str]:
    """What a rollback takes back unseen, if it does."""
    for place in places:
        if names := ", ".join(catalogue.tables[place].triggers):
            yield f"triggers of {place} ({names}) may have changed rows that are not shown, or something else"


def _parents(there: Rows, effects: Iterable[TableEffect], catalogue: Catalogue) -> Iterator[str]:
    """Rows that those that came refer to, as far as the reference is to a key; else their tables."""
    for effect in effects:
        table = catalogue.tables[effect.table]
        for each in table.foreign_keys:
            parent = catalogue.tables.get(each.parent)
            if parent is None or parent.key != each.target or len(effect.added) > NUM_KEYS:
                yield each.parent
                continue
            values = dict.fromkeys(table.literals(image, each.columns) for image in effect.added)
            for key, _ in there.matching(parent, [value for value in values if "NULL" not in value]):
                yield f"{each.parent}/{as_name(key)}"
