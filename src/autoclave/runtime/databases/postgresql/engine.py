"""One PostgreSQL database as an engine of databases.

Theory of operation. `user` of the settings owns the tables; `role`, which may do little, runs what is proposed, by
`SET LOCAL ROLE` in the transaction of the user. Before that the user puts triggers on the tables that may change, which
exist in this transaction alone (`recorder`); afterwards it reads what they heard, takes them away, and commits. Tables
that changed unheard are found by the server's counters: the transaction is then rolled back and run again with them. To
take rows back, the user writes them (`rows`), with the triggers of others switched off, under a recorder too: what was
written must be exactly what was meant, or nothing is. Whether a transaction was committed is told by its number, which
is durable in the state before the commit. Nothing of ours is in the database between two transactions, but for a held
one that is prepared.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import (
    NUM_KEYS,
    Definition,
    Effect,
    Image,
    TableEffect,
    as_name,
    without_collection,
)
from autoclave.runtime.databases.engine import Contested, Held, Json, Keep, Reading, Rejected
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.points import named_rows
from autoclave.runtime.databases.postgresql import holding
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, catalogue_of, fields_of, quoted
from autoclave.runtime.databases.postgresql.cloning import cloned
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.functions import are_settled, require_harmless
from autoclave.runtime.databases.postgresql.parsing import Name, Statement, parsed
from autoclave.runtime.databases.postgresql.recorder import (
    Counts,
    Recorder,
    Sums,
    counted,
    counted_since,
    drawn_seeds,
    rows_as_text,
)
from autoclave.runtime.databases.postgresql.rows import ORDERS, Rows, difference
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_TRIES = 5
_ESTIMATE_FACTOR = 10
"""An estimate so many times above the limit is believed."""
_PATIENCE_S = 5.0
_CORRECTIONS = 2


@dataclass(frozen=True, slots=True)
class _Done:
    """What statements did, tables whose changes were not heard, and how many rows the server has counted."""

    effect: Effect
    unheard: set[str]
    counts: Counts


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The sums of what was rehearsed, and tables to listen to that one could not tell beforehand."""

    sums: Sums
    more: frozenset[str]


class PostgresDatabase:
    """See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.HOLD, Mode.CLONE})

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self._name, self._settings, self._password = name, settings, password
        self._server = Server(name, settings, password)
        self._holding = holding.Holding(self._server)
        self._seeds = drawn_seeds()

    @property
    def _where(self) -> str:
        return self._server.where

    def close(self) -> None:
        self._holding.close()
        self._server.close()

    # --- Looking ----------------------------------------------------------------------------------------------------

    def schema(self) -> Schema:
        with self._server.transaction() as connection:
            tables = catalogue_of(connection, self._server.schemas).tables
        return Schema({place: table.as_table() for place, table in tables.items()})

    def read(self, operation: Sql, mode: Mode) -> Reading:
        with self._server.transaction() as connection:
            statements = self._parsed(connection, operation, mode)
            catalogue = catalogue_of(connection, self._server.schemas)
        defines = {self._place(catalogue, name) for each in statements for name in each.defines}
        writes: dict[str, frozenset[str]] = {}
        reads: set[str] = set()
        for number, each in enumerate(statements):
            for name, verbs in each.writes.items():
                place = self._known(catalogue, name, number, defines)
                writes[place] = writes.get(place, frozenset()) | verbs
            reads |= self._reads(operation, number, each, catalogue, defines)
        return Reading(writes, frozenset(reads), frozenset(defines))

    def _require_none_outside(self, connection: Any, catalogue: Catalogue, emptied: Collection[str]) -> None:
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
                f"{self._where}: a table outside of its schemas refers to what would be truncated. Mend: DELETE"
            )

    def _parsed(self, connection: Any, operation: Sql, mode: Mode) -> list[Statement]:
        found: list[Statement] = []
        for number, text in enumerate(operation.statements, start=1):
            each = parsed(text, number)
            require_harmless(connection, each.functions, self._settings.functions, number)
            _require_own_names(connection, each, number)
            if each.is_code and not self._settings.allows_code:
                raise InputError(
                    f"statement {number}: is refused: functions and triggers run with the rights of others; "
                    "`allows_code` in the settings permits them"
                )
            if each.kind == "define" and each.made is None and mode is not Mode.HOLD:
                raise InputError(
                    f'statement {number}: defines what images of rows do not hold; mode "hold" takes it back'
                )
            found.append(each)
        return found

    def _place(self, catalogue: Catalogue, name: Name) -> str:
        found = catalogue.find(*name, self._server.schemas)
        return found.place if found else f"{name[0] or self._server.schemas[0]}/{name[1]}"

    def _known(self, catalogue: Catalogue, name: Name, number: int, defines: Collection[str]) -> str:
        """The place of a table that a statement names.

        Raises:
            InputError: it is in none of the schemas that may be used.
        """
        place = self._place(catalogue, name)
        if place not in catalogue.tables and place not in defines:
            named = ".".join(filter(None, name))
            raise InputError(
                f"statement {number + 1}: there is no table {named} in the schemas {', '.join(self._server.schemas)}"
            )
        return place

    def _reads(
        self, operation: Sql, number: int, statement: Statement, catalogue: Catalogue, defines: Collection[str]
    ) -> set[str]:
        """What a statement depends on: rows that it names by their keys, else tables."""
        found = {self._known(catalogue, name, number, defines) for name in statement.reads}
        if statement.withs & {place.partition("/")[2] for place in catalogue.tables}:
            raise InputError(f"statement {number + 1}: a name of its WITH is that of a table; take another")
        for name in statement.writes if statement.kind == "rows" else ():
            table = catalogue.find(*name, self._server.schemas)
            key = table.key if table else ()
            rows = named_rows(operation.statements[number], operation.values_of(number), "postgres", key)
            place = self._place(catalogue, name)
            found |= {place} if rows is None else {f"{place}/{as_name(row)}" for row in rows}
        return found

    def lease(self, tables: Collection[str]) -> None:
        for place in sorted({"/".join(table.split("/")[:2]) for table in tables}):
            if not self._server.lease(place):
                raise InputError(f"{self._where}: another session works on table {place}; wait for it, or end it")

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode, planned: Effect | None = None) -> Effect:
        if mode is Mode.CLONE:
            with (
                cloned(self._server, self._password) as settings,
                contextlib.closing(PostgresDatabase(self._name, settings, "")) as clone,
            ):
                return replace(clone.rehearse(operation, Mode.IMAGES), evidence=None)
        with without_collection(), self._running(operation, mode, planned) as (_, done):
            return done.effect

    def perform(self, operation: Sql, keep: Keep, planned: Effect | None = None) -> None:
        with without_collection(), self._running(operation, Mode.IMAGES, planned) as (connection, done):
            keep(done.effect, self._server.mark(connection))
            self._server.commit(connection)

    @contextlib.contextmanager
    def _running(self, operation: Sql, mode: Mode, planned: Effect | None = None) -> Generator[tuple[Any, _Done]]:
        """Statements run in a transaction that is still open, with what they did. It is rolled back at the end.

        `planned`: is believed to be that, if the sums of its evidence come about; if not, they are run once more.
        """
        if planned is not None and isinstance(planned.evidence, _Evidence):
            with self._server.transaction() as connection:
                done = self._run(connection, operation, mode, planned.evidence.more, planned)
                if not done.unheard and done.effect == planned:
                    yield connection, replace(done, effect=planned)
                    return
        more: set[str] = set()
        for _ in range(_TRIES):
            with self._server.transaction() as connection:
                done = self._run(connection, operation, mode, more)
                if not done.unheard:
                    yield connection, done
                    return
                more |= done.unheard
        raise InputError(f"{self._where}: changes tables that cannot be listened to: {', '.join(sorted(more))}")

    def _run(
        self, connection: Any, operation: Sql, mode: Mode, more: Collection[str], planned: Effect | None = None
    ) -> _Done:
        """Run statements. `more`: tables to listen to besides those that can be told beforehand.

        `planned`: see `_running`; nothing is told of rows if it did not come about.
        """
        statements = self._parsed(connection, operation, mode)
        catalogue = catalogue_of(connection, self._server.schemas)
        written = {self._place(catalogue, name) for each in statements for name in each.writes}
        emptied = {
            self._place(catalogue, name) for each in statements if each.kind == "truncate" for name in each.writes
        }
        emptied = catalogue.with_referring(emptied) & catalogue.tables.keys()
        self._require_none_outside(connection, catalogue, emptied)
        places = (catalogue.with_cascades(written | set(more)) | emptied) & catalogue.tables.keys()
        listens = mode is not Mode.HOLD or all(each.kind != "define" for each in statements)
        heard = [catalogue.tables[place] for place in sorted(places)] if listens else []
        for table in heard:
            if table.kind == "f":
                raise InputError(f"{self._where}: table {table.place}: is on another server, and cannot be taken back")
        reads_rows = planned is None
        recorder = Recorder(connection, heard, self._settings.max_rows, self._seeds, reads_rows=reads_rows)
        counters = self._counters(connection)
        self._server.as_role(connection)
        for number, statement in enumerate(statements):
            self._require_estimate(connection, operation, number, statement)
            self.execute(connection, operation, number)
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self.leave_role(connection)
        effects = self._effects(recorder, planned)
        after = catalogue_of(connection, self._server.schemas)
        made = [] if mode is Mode.HOLD else list(self._made(connection, statements, operation, after))
        created = {each.name for each in made if each.kind == "table"}
        unheard = (recorder.unheard() - created) if listens else set[str]()
        if outside := unheard - after.tables.keys():
            raise InputError(f"{self._where}: changes tables outside of its schemas: {', '.join(sorted(outside))}")
        effects += [
            TableEffect(place, after.tables[place].layout, added=rows)
            for place in sorted(created)
            if (rows := self._rows_of_new(connection, after.tables[place]))
        ]
        sums = recorder.sums()
        counts, looked_at = recorder.counts(), recorder.looked_at() & after.tables.keys()
        recorder.close()
        moved = self._moved(counters, self._counters(connection))
        restarted = {name: values for name, values in moved.items() if values[1] < values[0]}
        reads = {key for n, each in enumerate(statements) for key in self._reads(operation, n, each, after, written)}
        reads |= {key for each in effects for key in _parents(each, after)}
        if any(catalogue.tables[each.table].triggers for each in effects if each.table in catalogue.tables):
            reads |= looked_at - written - {"/".join(key.split("/")[:2]) for key in reads}  # what triggers look at
        effect = Effect(
            tuple(effects),
            tuple(made),
            counters=restarted,
            reads=frozenset(reads),
            leaks=tuple(_leaks(moved.keys() - restarted.keys(), effects, catalogue)),
            is_settled=_is_settled(statements, effects, catalogue, self._server.schemas),
        )
        self._require_limits(connection, effect, after)
        if effect.is_settled and listens and not made:
            effect = replace(effect, evidence=_Evidence(sums, frozenset(more)))
        if not listens and sum(map(sum, counts.values())) > self._settings.max_rows:
            raise InputError(f"{self._where}: changes more than {self._settings.max_rows} rows (max_rows)")
        return _Done(effect, unheard, counts)

    def _effects(self, recorder: Recorder, planned: Effect | None) -> list[TableEffect]:
        if planned is None:
            return list(recorder.table_effects())
        return list(planned.tables) if recorder.sums() == planned.evidence.sums else []

    def execute(self, connection: Any, operation: Sql, number: int) -> None:
        """Run one statement, by the protocol that takes no more than one."""
        import psycopg

        with psycopg.RawCursor(connection) as cursor:
            cursor.execute(operation.statements[number].encode(), operation.values_of(number) or None, binary=True)

    def leave_role(self, connection: Any) -> None:
        """Be the user again, after a look at whether the statements were the role's all the time.

        Raises:
            InputError: they were not.
        """
        row = connection.execute(
            "SELECT current_user = %s AND pg_catalog.current_setting('session_replication_role') = 'origin'",
            (self._settings.role,),
        ).fetchone()
        if not row[0]:
            raise InputError(f"{self._where}: the statements changed who they are or how triggers fire")
        connection.execute("SET LOCAL ROLE NONE")
        self._server.plain_texts(connection)

    def _require_estimate(self, connection: Any, operation: Sql, number: int, statement: Statement) -> None:
        """Ask the planner, before a statement is run, whether it is far too much."""
        import psycopg

        if statement.kind != "rows":
            return
        with psycopg.RawCursor(connection) as cursor:
            text = f"EXPLAIN (FORMAT JSON) {operation.statements[number]}"
            cursor.execute(text.encode(), operation.values_of(number) or None)
            ((plan,),) = cursor.fetchall()
            rows = max((int(node["Plan Rows"]) for node in _changing(plan[0]["Plan"])), default=0)
        if rows > self._settings.max_rows * _ESTIMATE_FACTOR:
            raise InputError(
                f"statement {number + 1}: would change about {rows} rows, far more than max_rows "
                f"({self._settings.max_rows}); it was not run"
            )

    def _require_limits(self, connection: Any, effect: Effect, catalogue: Catalogue) -> None:
        if effect.num_rows > self._settings.max_rows:
            raise InputError(f"{self._where}: changes more than {self._settings.max_rows} rows (max_rows)")
        for each in effect.tables if self._settings.max_share < 1 else ():
            counts = each.counts
            changed = counts.get("modify", 0) + counts.get("delete", 0)
            (left,) = connection.execute(f"SELECT count(*) FROM {catalogue.tables[each.table].quoted}").fetchone()
            if changed > self._settings.max_share * max(left + len(each.removed) - len(each.added), 1):
                raise InputError(f"{self._where}: table {each.table}: changes a larger share of it than max_share")

    def _rows_of_new(self, connection: Any, table: TableFacts) -> tuple[Image, ...]:
        (count,) = connection.execute(f"SELECT count(*) FROM {table.quoted}").fetchone()
        if count > self._settings.max_rows:
            raise InputError(
                f"{self._where}: fills a new table with more than {self._settings.max_rows} rows (max_rows)"
            )
        return rows_as_text(connection, table)

    def _made(
        self, connection: Any, statements: Iterable[Statement], operation: Sql, after: Catalogue
    ) -> Iterator[Definition]:
        rows = Rows(connection, after, Effect())
        for number, each in enumerate(statements):
            if each.made is not None:
                kind, name = each.made
                schema = name[0] or self._server.schemas[0]
                place = f"{schema}/{name[1]}"
                yield Definition(kind, place, operation.statements[number], rows.definition(kind, place))

    def _counters(self, connection: Any) -> dict[str, int]:
        """Where sequences stand: the last number that was drawn, or one before the first."""
        rows = connection.execute(
            "SELECT schemaname || '/' || sequencename, COALESCE(last_value, start_value - increment_by) "
            "FROM pg_catalog.pg_sequences WHERE schemaname = ANY (%s)",
            (list(self._server.schemas),),
        )
        return dict(rows.fetchall())

    def _moved(self, before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
        both = before.keys() & after.keys()
        return {name: (before[name], after[name]) for name in sorted(both) if before[name] != after[name]}

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
        is_before, is_after = self.contested(effect), self.contested(effect.inverse())
        if status == "committed" and not (is_after and not is_before):
            return True
        if bool(is_before) != bool(is_after):
            return bool(is_before)
        raise InDoubt(f"{self._where}: the server has forgotten the transaction, and others have changed its rows")

    def contested(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with self._server.transaction() as connection:
            self._server.plain_texts(connection)
            catalogue = catalogue_of(connection, self._server.schemas)
            return Rows(connection, catalogue, effect).contested()

    def write(self, effect: Effect, keep: Keep) -> None:
        with self._server.transaction() as connection:
            self._server.plain_texts(connection)
            catalogue = catalogue_of(connection, self._server.schemas)
            touched = [catalogue.tables[each.table] for each in effect.tables if each.table in catalogue.tables]
            for table in sorted(touched, key=lambda each: each.place):
                connection.execute(f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE")
            rows = Rows(connection, catalogue, effect)
            if contested := rows.contested():
                raise Contested.over([f"{self._name}/{table}/{as_name(key)}".rstrip("/") for table, key in contested])
            if effect.created:
                self._make(connection, effect)
                catalogue = catalogue_of(connection, self._server.schemas)
                rows = Rows(connection, catalogue, effect)
            self._write_rows(connection, catalogue, effect, rows)
            self._drop(connection, effect)
            for name, (_, value) in effect.counters.items():
                self._restart(connection, name, value)
            keep(effect, self._server.mark(connection))
            self._server.commit(connection)

    def _write_rows(self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows) -> None:
        """Write rows in one order after the other, until what happened is what was meant.

        Raises:
            Rejected: it is in none of them.
        """
        import psycopg

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
        raise Rejected(f"{self._where}: {reason}")

    def _is_written(
        self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows, order: str, *, is_late: bool
    ) -> bool:
        """Whether writing did exactly what an effect says, to the tables of it and to all others."""
        places = catalogue.with_cascades(each.table for each in effect.tables) & catalogue.tables.keys()
        tables = [catalogue.tables[place] for place in sorted(places)]
        silenced = [table for table in tables if table.triggers]
        keys = [each for table in catalogue.tables.values() for each in table.foreign_keys if not each.is_deferrable]
        postponed = [each for each in keys if {each.child, each.parent} & places] if is_late else []
        for table in silenced:
            connection.execute(f"ALTER TABLE {table.quoted} DISABLE TRIGGER USER")
        for each in postponed:
            self._alter_key(connection, each.child, each.name, "DEFERRABLE INITIALLY DEFERRED")
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        recorder, wanted = Recorder(connection, tables, 2**62, self._seeds), rows.sums(self._seeds)
        rows.write(order)
        for _ in range(_CORRECTIONS):  # of what keys carried to rows that were to stay, or to be another
            if recorder.sums() == wanted:
                break
            wrong = difference(recorder.table_effects(), effect.tables)
            Rows(connection, catalogue, Effect(wrong)).write(ORDERS[0])
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        is_same = recorder.sums() == wanted and not recorder.unheard()
        recorder.close()
        for each in postponed:
            self._alter_key(connection, each.child, each.name, "NOT DEFERRABLE")
        for table in silenced:
            for name, enabled in table.triggers:
                how = {"O": "ENABLE", "D": "DISABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}[enabled]
                connection.execute(f"ALTER TABLE {table.quoted} {how} TRIGGER {quoted(name)}")
        return is_same

    def _alter_key(self, connection: Any, table: str, name: str, how: str) -> None:
        connection.execute(f"ALTER TABLE {quoted(*table.split('/'))} ALTER CONSTRAINT {quoted(name)} {how}")

    def _make(self, connection: Any, effect: Effect) -> None:
        self._server.as_role(connection)
        for each in effect.created:
            connection.execute(each.statement.encode())
        self.leave_role(connection)
        for each in effect.created:
            if each.kind == "table":  # what was made out of a query is full
                connection.execute(f"DELETE FROM {quoted(*each.name.split('/'))}")

    def _drop(self, connection: Any, effect: Effect) -> None:
        import psycopg

        if not effect.dropped:
            return
        try:
            connection.execute(f"SET LOCAL ROLE {quoted(self._settings.role)}")
            for each in effect.dropped:
                connection.execute(f"DROP {each.kind.upper()} {quoted(*each.name.split('/'))}")
            self.leave_role(connection)
        except psycopg.errors.DependentObjectsStillExist:
            raise Rejected(f"{self._where}: something of others depends on what it created") from None

    def _restart(self, connection: Any, name: str, value: int) -> None:
        """Set a sequence that was restarted to where it stood, unless it has gone beyond that since."""
        schema, _, own = name.partition("/")
        row = connection.execute(
            "SELECT COALESCE(last_value, start_value - increment_by), increment_by FROM pg_catalog.pg_sequences "
            "WHERE schemaname = %s AND sequencename = %s",
            (schema, own),
        ).fetchone()
        if row is not None and row[0] < value:
            connection.execute(f"ALTER SEQUENCE {quoted(schema, own)} RESTART WITH {int(value) + row[1]}")

    # --- Holding ----------------------------------------------------------------------------------------------------

    def hold(self, action: str, operation: Sql, keep: Keep) -> None:
        """See `Engine`. What it does is looked at in a rehearsal: a transaction that survives holds no recorder."""
        with self._running(operation, Mode.HOLD) as (_, done):
            effect, counts = done.effect, done.counts

        def run(connection: Any) -> None:
            before = counted(connection)
            self._server.as_role(connection)
            for number in range(len(operation.statements)):
                self.execute(connection, operation, number)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            self.leave_role(connection)
            if counted_since(before, connection) != counts:
                raise InputError(f"{self._where}: what it changes is not as it was planned; propose it again")

        self._holding.hold(action, run, lambda mark: keep(effect, mark))

    def held(self, action: str, mark: Json, effect: Effect) -> Held:
        return self._holding.held(action, mark)

    def end_hold(self, action: str, *, commit: bool) -> None:
        self._holding.end(action, commit=commit)


def open_database(name: str, connection: DatabaseConnection, password: str) -> PostgresDatabase:
    """See `Open`."""
    try:
        import pglast  # noqa: F401
        import psycopg  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise HostError(
            f"database {name}: PostgreSQL needs {error.name}. Mend: pip install 'autoclave[databases]'"
        ) from None
    if not connection.dbname:
        raise InputError(f"database {name}: engine postgresql needs dbname")
    return PostgresDatabase(name, connection, password)


def _changing(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a plan that say how many rows are to be changed."""
    for part in plan.get("Plans", ()):
        if plan["Node Type"] == "ModifyTable":
            yield part
        yield from _changing(part)


def _parents(effect: TableEffect, catalogue: Catalogue) -> Iterator[str]:
    """Rows that those that came refer to, as far as the reference is to a key; else their tables."""
    table = catalogue.tables[effect.table]
    places = {column[0]: number for number, column in enumerate(table.columns)}
    for each in table.foreign_keys:
        parent = catalogue.tables.get(each.parent)
        if parent is None:
            continue
        if parent.key != each.target or len(each.target) != 1 or len(effect.added) > NUM_KEYS:
            yield each.parent
            continue
        for _, row in effect.added:
            if (value := fields_of(row)[places[each.columns[0]]]) is not None:
                yield f"{each.parent}/{as_name(value)}"


def _leaks(moved: Iterable[str], effects: Iterable[TableEffect], catalogue: Catalogue) -> Iterator[str]:
    """What a rollback and an undo do not take back."""
    for name in sorted(moved):
        yield f"sequence {name} has drawn numbers that it does not give again: a gap stays, also of planning"
    for each in effects:
        if (table := catalogue.tables.get(each.table)) and table.triggers:
            names = ", ".join(name for name, _ in table.triggers)
            yield f"triggers of {each.table} ({names}) may have done something outside of the tables"


def _is_settled(
    statements: Iterable[Statement], effects: Iterable[TableEffect], catalogue: Catalogue, schemas: tuple[str, ...]
) -> bool:
    """Whether the same rows would come if it were done again."""
    filled: dict[str, frozenset[str] | None] = {}
    for each in statements:
        if each.asks_clock or not are_settled(each.functions):
            return False
        for name in each.writes:
            if table := catalogue.find(*name, schemas):
                filled[table.place] = each.filled
    for effect in effects:
        table = catalogue.tables.get(effect.table)
        if table is None:
            continue
        given = filled.get(effect.table, frozenset())
        if table.triggers or (effect.counts.get("create") and given is not None and table.unsettled - given):
            return False
    return True


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
