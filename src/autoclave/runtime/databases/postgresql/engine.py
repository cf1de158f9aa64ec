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
from collections.abc import Collection, Generator, Mapping
from dataclasses import replace
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import FoundRows, Json, Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.postgresql.evidence import Evidence
from autoclave.runtime.databases.postgresql.open_transactions import PreparedTransactions
from autoclave.runtime.databases.postgresql.reading import Planned, planned
from autoclave.runtime.databases.postgresql.recorder import Recorder
from autoclave.runtime.databases.postgresql.restoring import RestoringServer
from autoclave.runtime.databases.postgresql.role import OF_NEW, Prepared, Role, require_allowed, require_callees
from autoclave.runtime.databases.postgresql.rows import Rows
from autoclave.runtime.databases.servers import require_installed
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.tables import table_of
from autoclave.runtime.interface import InDoubt

_GAP = "sequence {} has drawn numbers that it does not give again: a gap stays, also of planning"
_BLIND = "triggers of {} ({}) may have done something outside of the tables"
_TRIES = 5
_PATIENCE_S = 5.0


class PostgresDatabase(RestoringServer):
    """See `Engine`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        super().__init__(name, settings, password)
        self.transactions = PreparedTransactions(self)

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self.transaction() as connection:
            return planned(connection, self, operation, mode)

    @contextlib.contextmanager
    def running(self, operation: Sql, mode: Mode) -> Generator[tuple[Any, Effect]]:
        more: set[str] = set()
        for _ in range(_TRIES):
            with self.transaction() as connection:
                plan, role = planned(connection, self, operation, mode), Role(self, connection)
                if mode is Mode.TRANSACTION:
                    yield connection, self._count(role, operation, plan)
                    return
                effect, unheard = self._record(role, operation, plan, more)
                if not unheard:
                    self.require_possible(connection, effect)
                    yield connection, effect
                    return
                more |= unheard
        raise InputError(f"{self.where}: changes tables that cannot be listened to: {', '.join(sorted(more))}")

    def _record(self, role: Role, operation: Sql, plan: Planned, more: Collection[str]) -> tuple[Effect, set[str]]:
        """Run statements on rows; what they did, and tables whose changes were not heard.

        `more`: tables to listen to besides those that can be told beforehand.
        """
        connection, catalogue = role.connection, plan.catalogue
        places = catalogue.with_cascades({*plan.writes, *more}) & catalogue.tables.keys()
        heard = [catalogue.tables[place] for place in sorted(places)]
        recorder = Recorder(connection, catalogue, heard, self.settings.max_rows)
        found = Evidence(connection)
        is_deterministic = self._act(role, operation, plan)
        recorder.require_untouched()
        recorder.require_keepable(self.settings.max_bytes)
        found.look()
        unheard = {*found.counts} - places
        self._require_all_seen(connection, plan, unheard, found, {})
        effect = Effect(
            tuple(recorder.table_effects()), reads=frozenset(recorder.parents()), is_deterministic=is_deterministic
        )
        recorder.close()
        return self._told(plan, found, effect), unheard

    def _count(self, role: Role, operation: Sql, plan: Planned, *, looks: bool = True) -> Effect:
        """Run statements that a rollback takes back; how many rows they change."""
        connection, catalogue = role.connection, plan.catalogue
        emptied = catalogue.with_referring(plan.emptied) & catalogue.tables.keys()
        sizes: dict[str, int] = {}
        for place in emptied:
            (sizes[place],) = connection.execute(f"SELECT count(*) FROM {catalogue.tables[place].quoted}").fetchone()
        found = Evidence(connection)
        is_deterministic = self._act(role, operation, plan, looks=looks)
        found.look()
        self._require_all_seen(connection, plan, found.counts, found, sizes)
        counts = Counter({(place, "delete"): sizes[place] for place in found.emptied & sizes.keys()})
        for place, numbers in found.counts.items():
            for verb, number in zip(("create", "modify", "delete"), numbers, strict=True):
                counts[place, verb] += max(number, 0)
        rows = tuple((place, verb, number) for (place, verb), number in sorted(counts.items()) if number)
        return self._told(plan, found, Effect(counted=rows, is_deterministic=is_deterministic))

    def _told(self, plan: Planned, found: Evidence, effect: Effect) -> Effect:
        """An effect with all that is known of it, if it is within the limits of the settings."""
        catalogue, reads = plan.catalogue, plan.reads | effect.reads
        verbs = {(place, verb) for place, verb, _ in effect.row_counts()}
        known = {place: catalogue.tables[place] for place, _ in sorted(verbs) if place in catalogue.tables}
        triggers = {place: [name for name, _ in table.triggers] for place, table in known.items() if table.triggers}
        if triggers:
            reads |= (found.looked_at & catalogue.tables.keys()) - plan.writes.keys() - {table_of(key) for key in reads}
        fills_itself = any(
            known[place].is_nondeterministic for place, verb in verbs if verb == "create" and place in known
        )
        blind = (_BLIND.format(place, ", ".join(sorted(names))) for place, names in triggers.items())
        return self.require_few(
            replace(
                effect,
                reads=reads,
                side_effects=(*map(_GAP.format, sorted(found.drawn)), *blind),
                is_deterministic=effect.is_deterministic and not triggers and not fills_itself,
            )
        )

    def _require_all_seen(
        self,
        connection: Any,
        plan: Planned,
        changed: Collection[str],
        found: Evidence,
        sizes: Mapping[str, int],
    ) -> None:
        """Check that nothing changed outside of the schemas, and nothing was emptied or defined that no statement says.

        Raises:
            InputError: something did.
        """
        after, defined = self.catalogue_of(connection), plan.catalogue.with_cascades(plan.defines)
        if outside := sorted({*changed, *found.emptied} - after.tables.keys() - defined):
            raise InputError(f"{self.where}: changes tables outside of its schemas: {', '.join(outside)}")
        emptied = found.emptied | (found.restarted if plan.are_rows else set())
        if unseen := sorted(emptied - defined - sizes.keys()):
            raise InputError(f"{self.where}: empties tables that no statement names: {', '.join(unseen)}")
        if plan.are_rows and (others := plan.catalogue.changed(after)):
            raise InputError(f"{self.where}: defines what no statement says: {', '.join(sorted(others))}")

    def _act(self, role: Role, operation: Sql, plan: Planned, *, looks: bool = True) -> bool:
        """Run statements as the role; whether what they call gives the same the next time.

        `looks`: whether what they call is looked at before.

        Raises:
            InputError: they call what they may not.
        """
        is_deterministic, allowed = all(each.is_deterministic for each in plan.statements), self.settings.functions
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
            if looks:
                require_allowed(role.connection, OF_NEW, allowed, number)
        role.end()
        return is_deterministic

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        until = time.monotonic() + _PATIENCE_S
        while (found := self.status(mark))[0] == "in progress" and time.monotonic() < until:
            time.sleep(0.05)
        status, is_same_run = found
        if status == "aborted":
            return False
        if status == "committed" and is_same_run:
            return True
        if status == "in progress":
            raise InDoubt(f"{self.where}: the server still works on its transaction")
        is_before, is_after = self.conflicting(effect), self.conflicting(effect.inverse())
        if status == "committed" and not (is_after and not is_before):
            return True
        return effect.has_come_true(self.where, is_before, is_after)

    def conflicting(self, effect: Effect) -> FoundRows:
        with self.transaction() as connection:
            return Rows(connection, self.catalogue_of(connection), effect).conflicting()

    def run_open(self, connection: Any, operation: Sql) -> tuple[Effect, Json]:
        """See `Engine`. What is called is looked at in a rehearsal: what survives us may touch nothing temporary."""
        self.rehearse(operation, Mode.TRANSACTION)
        role = Role(self, connection)
        self.begin(connection)
        plan = planned(connection, self, operation, Mode.TRANSACTION)
        effect = self._count(role, operation, plan, looks=False)
        timeout_ms = int(self.settings.transaction_timeout_s * 1000)
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {timeout_ms}")
        return effect, self.mark(connection)


def open_database(name: str, connection: DatabaseConnection, password: str) -> PostgresDatabase:
    """See `open_engine`."""
    require_installed(name, "PostgreSQL", "pglast", "psycopg", "sqlglot")
    if not connection.dbname:
        raise InputError(f"database {name}: engine postgresql needs dbname")
    return PostgresDatabase(name, connection, password)
