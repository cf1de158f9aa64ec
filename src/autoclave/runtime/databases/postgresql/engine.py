"""One PostgreSQL database as an engine of databases.

Theory of operation. `user` of the settings owns the tables; `role`, which may do little, runs what is proposed, in the
transaction of the user and kept from being anybody else (`role`). Before that the user puts triggers on the tables that
may change, which exist in this transaction alone (`recorder`); after it, it reads what they heard, takes them away, and
commits. Tables that changed unheard are found by the server's counters of rows and by the files of tables (`evidence`):
the transaction is then rolled back and run again with them. To take rows back, the user writes them, exactly or not at
all (`restoring`). Whether a transaction was committed is told by its number, which is durable in the state before the
commit. Nothing of ours is in the database between two transactions, but for an open one that is prepared.

In the mode `transaction` nobody listens: the rows that change are counted, and the rollback takes back whatever it was.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image
from autoclave.runtime.databases.engine import Json, Keep, Reading
from autoclave.runtime.databases.limits import require_limits
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, catalogue_of
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.evidence import Evidence
from autoclave.runtime.databases.postgresql.functions import OF_NEW, require_allowed
from autoclave.runtime.databases.postgresql.open_transactions import OpenTransactions
from autoclave.runtime.databases.postgresql.reading import Planned, planned
from autoclave.runtime.databases.postgresql.recorder import Recorder
from autoclave.runtime.databases.postgresql.restoring import Restoring
from autoclave.runtime.databases.postgresql.role import Prepared, Role, require_callees
from autoclave.runtime.databases.postgresql.rows import Rows
from autoclave.runtime.databases.servers import ServerDatabase, require_installed
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_TRIES = 5
_PATIENCE_S = 5.0


class PostgresDatabase(ServerDatabase[Server, OpenTransactions]):
    """See `Engine`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        server = Server(name, settings, password)
        super().__init__(server, OpenTransactions(server))
        self._restoring = Restoring(name, server)

    def is_durable(self) -> bool:
        return self._transactions.is_durable(self._server.connection)

    # --- Looking ----------------------------------------------------------------------------------------------------

    def _catalogue_of(self, connection: Any) -> Catalogue:
        return catalogue_of(connection, self._server.schemas)

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self._server.transaction() as connection:
            plan = planned(connection, self._server, operation, mode)
        return Reading(plan.writes, plan.reads, plan.defines)

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode) -> Effect:
        with self._running(operation, mode) as (_, effect):
            return effect

    def perform(self, operation: Sql, keep: Keep) -> None:
        with self._running(operation, Mode.IMAGES) as (connection, effect):
            keep(effect, self._server.mark(connection))
            self._server.commit(connection)

    @contextlib.contextmanager
    def _running(self, operation: Sql, mode: Mode) -> Generator[tuple[Any, Effect]]:
        """Statements run in a transaction that is still open, with what they did. It is rolled back at the end."""
        more: set[str] = set()
        for _ in range(_TRIES):
            with self._server.transaction() as connection:
                plan, role = planned(connection, self._server, operation, mode), Role(self._server, connection)
                if mode is Mode.TRANSACTION:
                    yield connection, self._count(role, operation, plan)
                    return
                effect, unheard = self._record(role, operation, plan, more)
                if not unheard:
                    self._restoring.require_possible(connection, effect)
                    yield connection, effect
                    return
                more |= unheard
        raise InputError(f"{self._where}: changes tables that cannot be listened to: {', '.join(sorted(more))}")

    def _record(self, role: Role, operation: Sql, plan: Planned, more: Collection[str]) -> tuple[Effect, set[str]]:
        """Run statements on rows; what they did, and tables whose changes were not heard.

        `more`: tables to listen to besides those that can be told beforehand.
        """
        connection, catalogue = role.connection, plan.catalogue
        places = catalogue.with_cascades({*plan.writes, *more}) & catalogue.tables.keys()
        heard = [catalogue.tables[place] for place in sorted(places)]
        recorder = Recorder(connection, catalogue, heard, self._settings.max_rows)
        found = Evidence(connection)
        is_deterministic = self._act(role, operation, plan)
        recorder.require_untouched()
        recorder.require_keepable(self._settings.max_bytes)
        found.look()
        unheard = {*found.counts} - places
        self._require_all_seen(connection, plan, unheard, found)
        effect = Effect(
            tuple(recorder.table_effects()), reads=frozenset(recorder.parents()), is_deterministic=is_deterministic
        )
        recorder.close()
        return self._told(connection, plan, found, effect), unheard

    def _count(self, role: Role, operation: Sql, plan: Planned, *, looks: bool = True) -> Effect:
        """Run statements that a rollback takes back; how many rows they change."""
        connection, catalogue = role.connection, plan.catalogue
        emptied = catalogue.with_referring(plan.emptied) & catalogue.tables.keys()
        sizes = {place: self._num_rows(connection, catalogue.tables[place], "ONLY") for place in emptied}
        found = Evidence(connection)
        is_deterministic = self._act(role, operation, plan, looks=looks)
        found.look()
        self._require_all_seen(connection, plan, found.counts, found, sizes)
        counts: Counter[tuple[str, str]] = Counter()
        for place, numbers in found.counts.items():
            for verb, number in zip(("create", "modify", "delete"), numbers, strict=True):
                counts[catalogue.whole(place), verb] += max(number, 0)
        for place in found.emptied & sizes.keys():
            counts[catalogue.whole(place), "delete"] += sizes[place]
        rows = tuple((place, verb, number) for (place, verb), number in sorted(counts.items()) if number)
        return self._told(connection, plan, found, Effect(counted=rows, is_deterministic=is_deterministic))

    def _told(self, connection: Any, plan: Planned, found: Evidence, effect: Effect) -> Effect:
        """An effect with all that is known of it, if it is within the limits of the settings."""
        catalogue, reads = plan.catalogue, plan.reads | effect.reads
        verbs = {(place, verb) for place, verb, _ in effect.row_counts()}
        triggers = {place: {*catalogue.triggers_of(place)} for place, _ in sorted(verbs)}
        if any(triggers.values()):
            seen = {catalogue.whole(place) for place in found.looked_at & catalogue.tables.keys()}
            reads |= seen - plan.writes.keys() - {table_of(key) for key in reads}
        parts = {part for place, verb in verbs if verb == "create" for part in catalogue.parts(place)}
        is_deterministic = not any(triggers.values()) and not any(
            catalogue.tables[part].is_nondeterministic for part in parts & catalogue.tables.keys()
        )
        effect = replace(
            effect,
            reads=reads,
            side_effects=tuple(_side_effects(found.drawn, triggers)),
            is_deterministic=effect.is_deterministic and is_deterministic,
        )
        after = self._catalogue_of(connection).tables if self._settings.max_share < 1 else {}
        require_limits(
            self._where,
            effect,
            self._settings,
            lambda place: self._num_rows(connection, after[place]) if place in after else 0,
        )
        return effect

    def _num_rows(self, connection: Any, table: TableFacts, only: str = "") -> int:
        return connection.execute(f"SELECT count(*) FROM {only} {table.quoted}").fetchone()[0]

    def _require_all_seen(
        self,
        connection: Any,
        plan: Planned,
        changed: Collection[str],
        found: Evidence,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Check that nothing changed outside of the schemas, and nothing was emptied or defined that no statement says.

        Raises:
            InputError: something did.
        """
        after, defined = self._catalogue_of(connection), plan.catalogue.with_cascades(plan.defines)
        if outside := sorted({*changed, *found.emptied} - after.tables.keys() - defined):
            raise InputError(f"{self._where}: changes tables outside of its schemas: {', '.join(outside)}")
        emptied = found.emptied | (found.restarted if plan.are_rows else set())
        if unseen := sorted(emptied - defined - sizes.keys()):
            raise InputError(f"{self._where}: empties tables that no statement names: {', '.join(unseen)}")
        if plan.are_rows and (others := plan.catalogue.changed(after)):
            raise InputError(f"{self._where}: defines what no statement says: {', '.join(sorted(others))}")

    def _act(self, role: Role, operation: Sql, plan: Planned, *, looks: bool = True) -> bool:
        """Run statements as the role; whether what they call gives the same the next time.

        `looks`: whether what they call is looked at before.

        Raises:
            InputError: they call what they may not.
        """
        is_deterministic, allowed = all(each.is_deterministic for each in plan.statements), self._settings.functions
        for number, statement in enumerate(plan.statements, start=1):
            text, values = operation.statements[number - 1], operation.values_of(number - 1)
            if statement.kind == "rows":
                prepared = Prepared(role, text, values)
                if looks:
                    is_deterministic &= require_callees(role, text, allowed, number, prepared.types())
                role.run(prepared.call)
                prepared.forget()
                continue
            if looks:
                is_deterministic &= require_allowed(role.connection, OF_NEW, allowed, number, names=statement.functions)
                is_deterministic &= not statement.query or require_callees(role, statement.query, allowed, number)
            role.run(text)
            if looks and not statement.is_code:
                require_allowed(role.connection, OF_NEW, allowed, number)
        role.end()
        return is_deterministic

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        until = time.monotonic() + _PATIENCE_S
        while (found := self._server.status(mark))[0] == "in progress" and time.monotonic() < until:
            time.sleep(0.05)
        status, is_same_run = found
        if status == "aborted":
            return False
        if status == "committed" and is_same_run:
            return True
        if status == "in progress":
            raise InDoubt(f"{self._where}: the server still works on its transaction")
        is_before, is_after = self.conflicting(effect), self.conflicting(effect.inverse())
        if status == "committed" and not (is_after and not is_before):
            return True
        if (has_come := effect.has_come_true(is_before, is_after)) is None:
            raise InDoubt(f"{self._where}: the server has forgotten the transaction, and others have changed its rows")
        return has_come

    def conflicting(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with self._server.transaction() as connection:
            return Rows(connection, self._catalogue_of(connection), effect).conflicting()

    def write(self, effect: Effect, keep: Keep) -> None:
        self._restoring.write(effect, keep)

    # --- Open transactions -----------------------------------------------------------------------------------------

    def open_transaction(self, action: str, operation: Sql, keep: Keep) -> None:
        """See `Engine`. What is called is looked at in a rehearsal: what survives us may touch nothing temporary."""
        self.rehearse(operation, Mode.TRANSACTION)

        def run(role: Role) -> Effect:
            plan = planned(role.connection, self._server, operation, Mode.TRANSACTION)
            return self._count(role, operation, plan, looks=False)

        self._transactions.begin(action, run, keep)


def open_database(name: str, connection: DatabaseConnection, password: str) -> PostgresDatabase:
    """See `open_engine`."""
    require_installed(name, "PostgreSQL", "pglast", "psycopg", "sqlglot")
    if not connection.dbname:
        raise InputError(f"database {name}: engine postgresql needs dbname")
    return PostgresDatabase(name, connection, password)


def _side_effects(drawn: Collection[str], triggers: Mapping[str, Collection[str]]) -> Iterator[str]:
    """What a rollback and an undo do not take back."""
    for name in sorted(drawn):
        yield f"sequence {name} has drawn numbers that it does not give again: a gap stays, also of planning"
    for place, names in triggers.items():
        if names:
            yield f"triggers of {place} ({', '.join(sorted(names))}) may have done something outside of the tables"
