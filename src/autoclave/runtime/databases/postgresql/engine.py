"""One PostgreSQL database as an engine of databases.

Theory of operation. `user` of the settings owns the tables; `role`, which may do little, runs what is proposed, in the
transaction of the user and kept from being anybody else (`role`). Before that the user puts triggers on the tables that
may change, which exist in this transaction alone (`rows`); after it, it reads what they heard, takes them away, and
commits. Tables that changed unheard are found by the server's counters of rows and by the files of tables: the
transaction is then rolled back and run again with them. To take rows back, the user writes them under a recorder, with
triggers of others switched off for the time: what was written must be what was meant, to the last row of all tables, or
it is rolled back. Whether a transaction was committed is told by its number, which is durable in the state before the
commit. Nothing of ours is in the database between two transactions.

In the mode `transaction` nobody listens: the rows that change are counted, and the rollback takes back whatever it was.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import FoundRows, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.postgresql.catalogue import Catalogue
from autoclave.runtime.databases.postgresql.connection import SQL, Server
from autoclave.runtime.databases.postgresql.parsing import Planned, planned
from autoclave.runtime.databases.postgresql.role import OF_NEW, Role, require_allowed, require_callees
from autoclave.runtime.databases.postgresql.rows import ORDERS, Evidence, Recorder, Rows, difference
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.tables import ForeignKey, names_of, quoted, table_of
from autoclave.runtime.interface import InDoubt

_GAP = "sequence {} has drawn numbers that it does not give again: a gap stays, also of planning"
_BLIND = "triggers of {} ({}) may have done something outside of the tables"
_TRIES = 5
_PATIENCE_S = 5.0
_CORRECTIONS = 2
_HOW = {"O": "ENABLE", "D": "DISABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}


class PostgresDatabase(Server):
    """See `Engine`."""

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self.transaction() as connection:
            return planned(connection, self, operation, mode)

    @contextlib.contextmanager
    def running(self, operation: Sql, mode: Mode) -> Generator[tuple[Any, Effect]]:
        more: set[str] = set()
        for _ in range(_TRIES):
            with self.transaction() as connection:
                if mode is Mode.TRANSACTION:
                    yield connection, self._count(connection, operation)
                    return
                effect, unheard = self._record(connection, operation, more)
                if not unheard:
                    self.require_possible(connection, effect)
                    yield connection, effect
                    return
                more |= unheard
        raise InputError(f"{self.where}: changes tables that cannot be listened to: {', '.join(sorted(more))}")

    def _record(self, connection: Any, operation: Sql, more: Collection[str]) -> tuple[Effect, set[str]]:
        """Run statements on rows; what they did, and tables whose changes were not heard.

        `more`: tables to listen to besides those that can be told beforehand.
        """
        plan, role = planned(connection, self, operation, Mode.IMAGES), Role(self, connection)
        catalogue = plan.catalogue
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

    def _count(self, connection: Any, operation: Sql) -> Effect:
        """Run statements that a rollback takes back; how many rows they change."""
        plan, role = planned(connection, self, operation, Mode.TRANSACTION), Role(self, connection)
        catalogue = plan.catalogue
        emptied = catalogue.with_referring(plan.emptied) & catalogue.tables.keys()
        sizes: dict[str, int] = {}
        for place in emptied:
            (sizes[place],) = connection.execute(f"SELECT count(*) FROM {catalogue.tables[place].quoted}").fetchone()
        found = Evidence(connection)
        is_deterministic = self._act(role, operation, plan)
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
        self, connection: Any, plan: Planned, changed: Collection[str], found: Evidence, sizes: Mapping[str, int]
    ) -> None:
        """Raise InputError if something changed outside of the schemas, or was emptied or defined unsaid."""
        after, defined = self.catalogue_of(connection), plan.catalogue.with_cascades(plan.defines)
        if outside := sorted({*changed, *found.emptied} - after.tables.keys() - defined):
            raise InputError(f"{self.where}: changes tables outside of its schemas: {', '.join(outside)}")
        emptied = found.emptied | (found.restarted if plan.are_rows else set())
        if unseen := sorted(emptied - defined - sizes.keys()):
            raise InputError(f"{self.where}: empties tables that no statement names: {', '.join(unseen)}")
        if plan.are_rows and (others := plan.catalogue.changed(after)):
            raise InputError(f"{self.where}: defines what no statement says: {', '.join(sorted(others))}")

    def _act(self, role: Role, operation: Sql, plan: Planned) -> bool:
        """Run statements as the role; return whether their calls, if they are allowed, give the same the next time."""
        is_deterministic, allowed = all(each.is_deterministic for each in plan.statements), self.settings.functions
        for number, statement in enumerate(plan.statements, start=1):
            text, values = operation.statements[number - 1], operation.values_of(number - 1)
            if statement.kind == "rows":
                call, types = role.prepare(text, values)
                is_deterministic &= require_callees(role, text, allowed, number, types)
                role.run(call)
                role.run("DEALLOCATE autoclave")
                continue
            is_deterministic &= require_allowed(role.connection, OF_NEW, allowed, number, names=statement.functions)
            is_deterministic &= not statement.query or require_callees(role, statement.query, allowed, number)
            role.run(text)
            require_allowed(role.connection, OF_NEW, allowed, number)
        role.end()
        return is_deterministic

    def run_open(self, connection: Any, operation: Sql) -> tuple[Effect, Json]:
        self.begin(connection)
        effect = self._count(connection, operation)
        timeout_ms = int(self.settings.transaction_timeout_s * 1000)
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {timeout_ms}")
        return effect, self.mark(connection)

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

    def write(self, effect: Effect, keep: Keep) -> None:
        with self.transaction() as connection:
            catalogue = self.catalogue_of(connection)
            touched = [catalogue.tables[each.table] for each in effect.tables if each.table in catalogue.tables]
            for table in sorted(touched, key=lambda each: each.place):
                connection.execute(f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE")
            rows = Rows(connection, catalogue, effect)
            if conflicting := rows.conflicting():
                raise RowConflict.over(self.name, conflicting)
            self._write_rows(connection, catalogue, effect, rows)
            keep(effect, self.mark(connection))
            self.commit(connection)

    def require_possible(self, connection: Any, effect: Effect) -> None:
        """Look that an effect can be taken back, in the transaction in which it came about.

        That is so wherever what was there before may be there again. Where it may not, it is tried out and rolled back:
        where constraints were never checked for old rows; and where unique values of rows that others refer to were
        exchanged, so that rows would have to go for a while.

        Raises InputError where it cannot.
        """
        catalogue = self.catalogue_of(connection)
        tables = tuple(each.inverse() for each in effect.tables)
        facts = [(catalogue.tables[each.table], each.counts.get("modify", 0) > 1) for each in tables]
        for table, _ in facts:  # with row security that holds for the user, and with keys that cannot be compared
            same = table.is_same_key("t", "o")
            try:
                connection.execute(f"SELECT FROM {table.quoted} t JOIN {table.quoted} o ON {same} LIMIT 0")
            except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege) as error:
                raise InputError(
                    f"table {table.place}: its rows could not all be found again, since its row security is forced "
                    f"upon the user, too, or its key has a type that cannot be compared ({error.sqlstate}); mode "
                    '"transaction" takes it back'
                ) from None
        oids, exchanged = [table.oid for table, _ in facts], [table.oid for table, are_several in facts if are_several]
        if not connection.execute(SQL["doubtful constraints"], {"oids": oids, "exchanged": exchanged}).fetchone()[0]:
            return
        inverse = Effect(tables)
        connection.execute("SAVEPOINT possible")
        try:
            self._write_rows(connection, catalogue, inverse, Rows(connection, catalogue, inverse))
        except Rejected as error:
            raise InputError(
                f'could not be taken back by its rows; mode "transaction" takes it back ({error})'
            ) from None
        connection.execute("ROLLBACK TO SAVEPOINT possible")

    def _write_rows(self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows) -> None:
        """Write rows in one order after the other, until what happened is what was meant; else raise Rejected."""
        if not effect.tables:
            return
        reason = "more would change than it changed: rows of others depend on them"
        for is_late in (False, True):
            for order in ORDERS:
                connection.execute("SAVEPOINT written")
                try:
                    if self._is_written(connection, catalogue, effect, rows, order, is_late=is_late):
                        connection.execute("RELEASE SAVEPOINT written")
                        return
                except psycopg.errors.IntegrityError as error:
                    reason = f"what others did since stands against it ({error.diag.constraint_name})"
                connection.execute("ROLLBACK TO SAVEPOINT written")
        raise Rejected(f"{self.where}: {reason}")

    def _is_written(
        self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows, order: str, *, is_late: bool
    ) -> bool:
        """Return whether writing did exactly what an effect says, to the tables of it and to all others."""
        places = catalogue.with_cascades(each.table for each in effect.tables) & catalogue.tables.keys()
        tables = [catalogue.tables[place] for place in sorted(places)]
        keys = [each for table in catalogue.tables.values() for each in table.foreign_keys if not each.is_deferrable]
        postponed = [each for each in keys if {each.child, each.parent} & places] if is_late else []
        for table in tables:
            if table.triggers:
                connection.execute(f"ALTER TABLE {table.quoted} DISABLE TRIGGER USER")
        self._alter_keys(connection, postponed, "DEFERRABLE INITIALLY DEFERRED")
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        found, recorder = Evidence(connection), Recorder(connection, catalogue, tables, 2**62)
        rows.write(order)
        for _ in range(_CORRECTIONS):  # of what keys carried to rows that were to stay, or to be another
            if not (wrong := difference(recorder.table_effects(), effect.tables)):
                break
            Rows(connection, catalogue, Effect(wrong)).write(ORDERS[0])
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        found.look()
        is_same = not difference(recorder.table_effects(), effect.tables) and not found.counts.keys() - recorder.heard
        recorder.close()
        self._alter_keys(connection, postponed, "NOT DEFERRABLE")
        for table in tables:
            for name, enabled in table.triggers:
                connection.execute(f"ALTER TABLE {table.quoted} {_HOW[enabled]} TRIGGER {quoted(name)}")
        after = self.catalogue_of(connection)
        if any(after.tables.get(table.place) != table for table in tables):
            raise Rejected(f"{self.where}: triggers or keys would not be as before")
        return is_same

    def _alter_keys(self, connection: Any, keys: Sequence[ForeignKey], how: str) -> None:
        for each in keys:
            table = quoted(*names_of(each.child))
            connection.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {quoted(each.name)} {how}")


def open_database(name: str, connection: DatabaseConnection, password: str) -> PostgresDatabase:
    return PostgresDatabase(name, connection, password)
