"""One PostgreSQL database as an engine of databases.

Theory of operation. `user` of the settings owns the tables; `role`, which may do little, runs what is proposed, in the
transaction of the user and kept from being anybody else (`role`). Before that the user puts triggers on the tables that
may change, which exist in this transaction alone (`recorder`); after it, it reads what they heard, takes them away, and
commits. Tables that changed unheard are found by the server's counters of rows and by the files of tables (`evidence`):
the transaction is then rolled back and run again with them. To take rows back, the user writes them, exactly or not at
all (`restoring`). Whether a transaction was committed is told by its number, which is durable in the state before the
commit. Nothing of ours is in the database between two transactions, but for a held one that is prepared.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.runtime.databases.effects import Definition, Effect, Image, TableEffect, without_collection
from autoclave.runtime.databases.engine import Held, Json, Keep, Reading
from autoclave.runtime.databases.limits import require_limits
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import place_of, table_of
from autoclave.runtime.databases.postgresql import holding
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, catalogue_of
from autoclave.runtime.databases.postgresql.cloning import cloned
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.evidence import (
    Scope,
    has_triggers,
    is_settled,
    leaks,
    parents,
    require_emptied_as_heard,
    sizes_of,
    standing_of,
)
from autoclave.runtime.databases.postgresql.functions import (
    Callees,
    callees_of_new,
    require_allowed,
)
from autoclave.runtime.databases.postgresql.parsing import Statement
from autoclave.runtime.databases.postgresql.reading import Reader
from autoclave.runtime.databases.postgresql.recorder import (
    Counts,
    Recorder,
    Sums,
    counted,
    counted_since,
    drawn_seeds,
    rows_as_text,
)
from autoclave.runtime.databases.postgresql.restoring import Restoring
from autoclave.runtime.databases.postgresql.role import Prepared, Role, callees
from autoclave.runtime.databases.postgresql.rows import Rows
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_TRIES = 5
_ESTIMATE_FACTOR = 10
"""An estimate so many times above the limit is believed."""
_PATIENCE_S = 5.0


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
        self._reader = Reader(self._server)
        self._restoring = Restoring(name, self._server, self._seeds)
        self._changed_before: tuple[Sql | None, frozenset[str]] = None, frozenset()
        """Tables that the statements of an action changed when they were run last, beside those that can be told."""

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
            return self._reader.read(connection, operation, mode)

    def lease(self, tables: Collection[str]) -> None:
        for place in sorted({table_of(table) for table in tables}):
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
        known, changed_before = self._changed_before
        more = set(changed_before) if known == operation else set[str]()
        for _ in range(_TRIES):
            with self._server.transaction() as connection:
                done = self._run(connection, operation, mode, more)
                if not done.unheard:
                    self._changed_before = operation, frozenset(more)
                    if mode is not Mode.HOLD:
                        self._restoring.require_possible(connection, done.effect)
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
        statements = self._reader.parsed(connection, operation, mode)
        catalogue = catalogue_of(connection, self._server.schemas)
        scope = self._scope(connection, catalogue, statements, mode, more)
        reads_rows = planned is None
        recorder = Recorder(
            connection, catalogue, scope.heard, self._settings.max_rows, self._seeds, reads_rows=reads_rows
        )
        before = standing_of(connection)
        are_settled = self._act(Role(self._server, connection), operation, statements)
        recorder.require_untouched()
        effects = self._effects(recorder, planned)
        catalogue_after, after = catalogue_of(connection, self._server.schemas), standing_of(connection)
        made = [] if mode is Mode.HOLD else list(self._made(connection, statements, operation, catalogue_after))
        created = {each.name for each in made if each.kind == "table"}
        counts, new_files = recorder.counts(), after.rewritten(before)
        rewritten = new_files - after.counters.keys()
        unheard = (counts.keys() | rewritten) - scope.places - created
        self._require_none_unseen(unheard, rewritten, scope, catalogue_after)
        if scope.listens and (others := catalogue.changed(catalogue_after) - {each.name for each in made}):
            raise InputError(f"{self._where}: defines what no statement says: {', '.join(sorted(others))}")
        require_emptied_as_heard(connection, rewritten - scope.defined)
        effects += [
            TableEffect(place, catalogue_after.tables[place].layout, added=rows)
            for place in sorted(created)
            if (rows := self._rows_of_new(connection, catalogue_after.tables[place]))
        ]
        sums, looked_at = recorder.sums(), recorder.looked_at() & catalogue_after.tables.keys()
        recorder.close()
        moved = after.moved(before)
        restarted = {name: pair for name, pair in moved.items() if name in new_files}
        reads = self._reads(operation, statements, effects, catalogue_after, looked_at)
        effect = Effect(
            tuple(effects),
            tuple(made),
            counters=restarted,
            reads=reads,
            leaks=tuple(leaks(moved.keys() - restarted.keys(), effects, catalogue)),
            is_settled=are_settled and is_settled(statements, effects, catalogue, self._server.schemas),
            counted=() if scope.listens else scope.counted(counts, rewritten, catalogue_after),
        )
        require_limits(
            self._where, effect, self._settings, lambda place: self._num_left(connection, catalogue_after.tables[place])
        )
        if effect.is_settled and scope.listens and not made:
            effect = replace(effect, evidence=_Evidence(sums, frozenset(more)))
        return _Done(effect, unheard if scope.listens else set(), counts)

    def _reads(
        self,
        operation: Sql,
        statements: Sequence[Statement],
        effects: Sequence[TableEffect],
        catalogue: Catalogue,
        looked_at: Collection[str],
    ) -> frozenset[str]:
        """What statements depend on, with what the rows that came refer to, and what triggers looked at."""
        written = {self._reader.place(catalogue, name) for each in statements for name in each.writes}
        reads = {key for each in effects for key in parents(each, catalogue)}
        for number, each in enumerate(statements):
            reads |= self._reader.reads(operation, number, each, catalogue, written)
        if has_triggers(effects, catalogue):
            seen = {catalogue.whole(place) for place in looked_at}
            reads |= seen - written - {table_of(key) for key in reads}
        return frozenset(reads)

    def _scope(
        self, connection: Any, catalogue: Catalogue, statements: Sequence[Statement], mode: Mode, more: Collection[str]
    ) -> Scope:
        """What is looked at while statements are run."""
        written = {self._reader.place(catalogue, name) for each in statements for name in each.writes}
        truncating = (each for each in statements if each.kind == "truncate")
        named = {self._reader.place(catalogue, name) for each in truncating for name in each.writes}
        emptied = catalogue.with_referring(named) & catalogue.tables.keys()
        self._reader.require_none_outside(connection, catalogue, emptied)
        if mode is Mode.HOLD and any(each.kind == "define" for each in statements):
            defined = {self._reader.defined(name, 0) for each in statements for name in each.defines}
            return Scope(False, (), catalogue.with_cascades(defined), sizes_of(connection, catalogue, emptied))
        places = (catalogue.with_cascades(written | set(more)) | emptied) & catalogue.tables.keys()
        heard = tuple(catalogue.tables[place] for place in sorted(places))
        for table in heard:
            if table.kind == "f":
                raise InputError(f"{self._where}: table {table.place}: is on another server, and cannot be taken back")
        return Scope(True, heard)

    def _require_none_unseen(
        self, unheard: Collection[str], rewritten: Collection[str], scope: Scope, after: Catalogue
    ) -> None:
        """Look that nothing changed where nobody may look, or can.

        Raises:
            InputError: something did.
        """
        if outside := sorted(set(unheard) - after.tables.keys() - scope.defined):
            raise InputError(f"{self._where}: changes tables outside of its schemas: {', '.join(outside)}")
        if not scope.listens and (unseen := sorted(set(rewritten) - scope.defined - scope.sizes.keys())):
            raise InputError(f"{self._where}: empties tables that no statement names: {', '.join(unseen)}")

    def _act(self, role: Role, operation: Sql, statements: Sequence[Statement], *, looks: bool = True) -> bool:
        """Run statements as the role; whether what they call gives the same the next time.

        `looks`: whether what they call and how much they change is looked at before.

        Raises:
            InputError: they call what they may not, or the planner expects far too many rows.
        """
        are_settled = True
        for number, statement in enumerate(statements, start=1):
            text, values = operation.statements[number - 1], operation.values_of(number - 1)
            if statement.kind == "rows":
                prepared = Prepared(role, text, values)
                if looks:
                    are_settled &= self._require_callees(role, callees(role, text, prepared.types()), number)
                    self._require_estimate(prepared.estimate(), number)
                role.run(prepared.call)
                prepared.forget()
                continue
            if statement.query and looks:
                are_settled &= self._require_callees(role, callees(role, statement.query), number)
            role.run(text)
            if looks and not statement.is_code:
                self._require_callees(role, callees_of_new(role.connection), number)
        role.end()
        return are_settled

    def _require_callees(self, role: Role, found: Callees, number: int) -> bool:
        require_allowed(role.connection, found, self._settings.functions, number)
        return found.are_settled

    def _require_estimate(self, rows: int, number: int) -> None:
        if rows > self._settings.max_rows * _ESTIMATE_FACTOR:
            raise InputError(
                f"statement {number}: would change about {rows} rows, far more than max_rows "
                f"({self._settings.max_rows}); it was not run"
            )

    def _effects(self, recorder: Recorder, planned: Effect | None) -> list[TableEffect]:
        if planned is None:
            recorder.require_keepable(self._settings.max_bytes)
            return list(recorder.table_effects())
        return list(planned.tables) if recorder.sums() == planned.evidence.sums else []

    def _num_left(self, connection: Any, table: TableFacts) -> int:
        (left,) = connection.execute(f"SELECT count(*) FROM {table.quoted}").fetchone()
        return left

    def _rows_of_new(self, connection: Any, table: TableFacts) -> tuple[Image, ...]:
        if self._num_left(connection, table) > self._settings.max_rows:
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
                place = place_of(schema, name[1])
                yield Definition(kind, place, operation.statements[number], rows.definition(kind, place))

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
            catalogue = catalogue_of(connection, self._server.schemas)
            return Rows(connection, catalogue, effect).contested()

    def write(self, effect: Effect, keep: Keep) -> None:
        self._restoring.write(effect, keep)

    # --- Holding ----------------------------------------------------------------------------------------------------

    def hold(self, action: str, operation: Sql, keep: Keep) -> None:
        """See `Engine`. What it does is looked at in a rehearsal: a transaction that survives holds no recorder."""
        with self._running(operation, Mode.HOLD) as (_, done):
            effect, counts = done.effect, done.counts

        def run(role: Role) -> None:
            before = counted(role.connection)
            self._act(role, operation, self._reader.parsed(role.connection, operation, Mode.HOLD), looks=False)
            if counted_since(before, role.connection) != counts:
                raise InputError(f"{self._where}: what it changes is not as it was planned; propose it again")

        self._holding.hold(action, run, lambda mark: keep(effect, mark))

    def held(self, action: str, mark: Json) -> Held:
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
            f"database {name}: PostgreSQL needs {error.name}. Fix: {install_command('databases')}"
        ) from None
    if not connection.dbname:
        raise InputError(f"database {name}: engine postgresql needs dbname")
    return PostgresDatabase(name, connection, password)
