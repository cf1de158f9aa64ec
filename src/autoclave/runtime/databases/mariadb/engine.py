"""One MariaDB database as an engine of databases.

Theory of operation. `user` of the settings may do no more than change rows of `schemas`, and see their triggers. What
is proposed runs in one serializable transaction, in which the rows that it changes are locked and read before and after
(`recorder`). Nothing that would end that transaction is let through (`parsing`). Rows are written back without the
server looking at foreign keys, which we look at ourselves (`rows`). Whether a transaction was committed is told by the
rows themselves, since all of them were written at once or none; they are locked for that look, so that one which is
still under way is waited for. Nothing of ours is in the database between two transactions, but for an open one that is
prepared (`open_transactions`).

What cannot be seen is not let through: triggers, views (they may call functions that write), engines other than InnoDB,
tables with a history of their own, and foreign keys from schemas that are not the session's (`reading`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import NUM_KEYS, Effect, Image, TableEffect, as_name
from autoclave.runtime.databases.engine import Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.limits import require_limits
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, catalogue_of
from autoclave.runtime.databases.mariadb.connection import Server, rows
from autoclave.runtime.databases.mariadb.counters import Counters
from autoclave.runtime.databases.mariadb.failures import number_of, told
from autoclave.runtime.databases.mariadb.open_transactions import OpenTransactions
from autoclave.runtime.databases.mariadb.reading import planned
from autoclave.runtime.databases.mariadb.recorder import Recorder
from autoclave.runtime.databases.mariadb.rows import Rows
from autoclave.runtime.databases.operations import Sql, in_statement
from autoclave.runtime.databases.servers import ServerDatabase, require_installed
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_TRIES = 3
_REFUSED_ROWS = (1062, 1451, 1452, 1048, 4025, 1364, 1906, 1292, 1366)


class MariaDatabase(ServerDatabase[Server, OpenTransactions]):
    """See `Engine`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        server = Server(name, settings, password)
        super().__init__(server, OpenTransactions(server))
        self._name = name
        self._catalogue: Catalogue | None = None

    def is_durable(self) -> bool:
        return True

    # --- Looking ----------------------------------------------------------------------------------------------------

    def _catalogue_of(self, connection: Any) -> Catalogue:
        return catalogue_of(connection, self._server.schemas)

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self._server.looking() as connection:
            self._catalogue = self._catalogue_of(connection)
        plan = planned(self._catalogue, self._server, operation, mode)
        return Reading(plan.writes, plan.reads)

    def _locked(self, connection: Any, places: Callable[[Catalogue], Collection[str]]) -> Catalogue:
        """What is there, after some tables cannot be altered any more until the transaction ends.

        Raises:
            HostError: they are altered all the time.
        """
        import pymysql

        for _ in range(_TRIES):
            known = self._catalogue or self._catalogue_of(connection)
            for place in sorted(known.with_cascades(places(known)) & known.tables.keys()):
                with contextlib.suppress(pymysql.err.ProgrammingError):  # there is no such table any more
                    rows(connection, f"SELECT 1 FROM {known.tables[place].quoted} LIMIT 0")
            self._catalogue = self._catalogue_of(connection)
            if self._catalogue == known:
                return known
        raise HostError(f"{self._where}: tables are being altered. Fix: try again")

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode) -> Effect:
        with self._server.transaction() as connection:
            return self._run(connection, operation, mode)

    def perform(self, operation: Sql, keep: Keep) -> None:
        with self._server.transaction() as connection:
            keep(self._run(connection, operation, Mode.IMAGES), {})
            self._server.commit(connection)

    def _run(self, connection: Any, operation: Sql, mode: Mode) -> Effect:
        """Run statements in the transaction that is open; what they did."""
        catalogue = self._locked(connection, lambda known: planned(known, self._server, operation, mode).writes)
        plan, tables = planned(catalogue, self._server, operation, mode), catalogue.tables
        recorder = Recorder(connection, catalogue, self._settings.max_rows)
        counters = Counters(connection, [tables[place] for place in plan.writes])
        for number, (each, places) in enumerate(zip(plan.statements, plan.places, strict=True), 1):
            with in_statement(number):
                recorder.run(each, tables[places[0]], places)
            counters.look(each, tables[places[0]])
        effects = tuple(recorder.table_effects())
        drawn = counters.drawn & {each.table for each in effects if each.counts.get("create")}
        blind = {place: tables[place].triggers for place in sorted(catalogue.with_cascades(plan.writes))}
        effect = Effect(
            effects,
            reads=plan.reads | {*_parents(Rows(connection, catalogue, locks=False), effects, catalogue)},
            side_effects=(
                *map(_GAP.format, sorted(drawn | counters.moved())),
                *(_BLIND.format(place, ", ".join(names)) for place, names in blind.items() if names),
            ),
            is_deterministic=not drawn
            and all(each.is_deterministic for each in plan.statements)
            and not any(tables[each.table].fills_by_clock for each in effects),
        )
        count = "SELECT count(*) FROM {}"
        require_limits(
            self._where,
            effect,
            self._settings,
            lambda place: int(rows(connection, count.format(tables[place].quoted))[0][0]),
        )
        return effect

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: object, effect: Effect) -> bool:
        """See `Engine`: the rows tell. Where the transaction still goes on, it has locked them, and is waited for."""
        try:
            with self._server.transaction() as connection:
                found = Rows(connection, self._catalogue_of(connection))
                is_before, is_after = found.conflicting(effect), found.conflicting(effect.inverse())
        except HostError as error:
            raise InDoubt(f"{error}") from None
        if (has_come := effect.has_come_true(is_before, is_after)) is None:
            raise InDoubt(f"{self._where}: others have changed all that would tell whether it was committed")
        return has_come

    def conflicting(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with self._server.looking() as connection:
            return Rows(connection, self._catalogue_of(connection), locks=False).conflicting(effect)

    def write(self, effect: Effect, keep: Keep) -> None:
        import pymysql

        with self._server.transaction(is_exact=True) as connection:
            places = {each.table for each in effect.tables}
            there = Rows(connection, self._locked(connection, lambda known: known.tables.keys() & places))
            if conflicting := there.conflicting(effect):
                raise RowConflict.over(self._name, conflicting)
            try:
                there.write(effect)
            except pymysql.Error as error:
                if number_of(error) not in _REFUSED_ROWS:
                    raise
                raise Rejected(f"{self._where}: what others did since stands against it: {told(error)}") from None
            keep(effect, {})
            self._server.commit(connection)

    # --- Open transactions -----------------------------------------------------------------------------------------

    def open_transaction(self, action: str, operation: Sql, keep: Keep) -> None:
        self._transactions.begin(action, lambda connection: self._run(connection, operation, Mode.TRANSACTION), keep)


def open_database(name: str, connection: DatabaseConnection, password: str) -> MariaDatabase:
    """See `open_engine`."""
    require_installed(name, "MariaDB", "pymysql", "sqlglot")
    if not connection.dbname:
        raise InputError(f"database {name}: engine mariadb needs dbname")
    if connection.role:
        raise InputError(f"database {name}: role: a role of MariaDB only adds to the rights of its user; name a user")
    return MariaDatabase(name, connection, password)


_GAP = "AUTO_INCREMENT of {} has given numbers that it does not give again: a gap stays, also of planning"
_BLIND = "triggers of {} ({}) may have changed rows that are not shown, or something else"
"""What a rollback takes back unseen, if it does."""


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
