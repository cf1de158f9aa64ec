"""One SQLite file as an engine of databases.

Theory of operation. Statements run in one immediate transaction on a connection that compiles no more than one action
at a time (`barrier`), while a hook hears every row that changes (`recorder`). Rows are written back on another
connection, without triggers and foreign keys, which are checked at the end (`rows`). A commit is atomic: whether it
came about is told by the rows themselves. One session of ours has a file at a time: the lease is an abstract socket
with its device and inode in the name, which leaves no file behind and ends with the process.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.runtime.databases.effects import (
    Definition,
    Effect,
    Image,
    without_collection,
)
from autoclave.runtime.databases.engine import Contested, Held, Json, Keep, Reading, Rejected
from autoclave.runtime.databases.limits import require_limits, too_many
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of, place_of
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.sqlite.barrier import Seen, guarded, without_foreign_keys
from autoclave.runtime.databases.sqlite.catalogue import (
    Objects,
    TableMaker,
    counters_of,
    objects_of,
    quoted,
    tables_of,
)
from autoclave.runtime.databases.sqlite.cloning import cloned
from autoclave.runtime.databases.sqlite.dependences import parents_of, reads_of
from autoclave.runtime.databases.sqlite.failures import translated
from autoclave.runtime.databases.sqlite.holding import Holding
from autoclave.runtime.databases.sqlite.place import OpenFiles, lease_of
from autoclave.runtime.databases.sqlite.recorder import Recorder
from autoclave.runtime.databases.sqlite.rows import Rows
from autoclave.runtime.interface import InDoubt

if TYPE_CHECKING:
    import apsw

_INVERTIBLE = ("table", "index", "view")


@dataclass(frozen=True, slots=True)
class _Evidence:
    """How the file was when statements were rehearsed, and which rows they changed, in order.

    SQLite does the same with the same file: where nobody has written to it since, and nothing was drawn by lot or read
    from a clock, the rows before and after are those of the rehearsal. That the same rows were changed is looked at all
    the same.
    """

    version: tuple[int, int]
    rowids: array[int]


class SqliteDatabase:
    """See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.HOLD, Mode.CLONE})

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        self._name, self._settings = name, settings
        self._num_commits = 0
        self._uncontested: tuple[Effect, tuple[int, int]] | None = None
        with contextlib.ExitStack() as opening:
            path = Path(settings.path)
            if not path.is_file():
                raise InputError(f"database {name}: path {path}: there is no such file")
            opening.callback(lease_of(name, path).close)
            self._acting = self._connect()
            opening.callback(self._acting.close)
            self._writing = self._connect(enforces=False)
            opening.callback(self._writing.close)
            with translated(self._where):
                tables_of(self._acting)
            self._files = OpenFiles(path)
            self._opened = opening.pop_all()
        self._holding = Holding(self._connect, self._require_same, settings.hold_s, self._where)

    @property
    def _where(self) -> str:
        return f"database {self._name}"

    def _require_same(self) -> None:
        self._files.require_same(self._where)

    def _connect(self, *, enforces: bool | None = None, path: str = "") -> apsw.Connection:
        import apsw

        with translated(self._where):
            connection = apsw.Connection(
                path or self._settings.path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=0
            )
            connection.set_busy_timeout(int(self._settings.lock_timeout_s * 1000))
            is_on = self._settings.enforces_foreign_keys if enforces is None else enforces
            connection.execute(f"PRAGMA foreign_keys = {int(is_on)}")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_spill = OFF")  # others can read what was before until it is committed
            if enforces is False:
                connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
                connection.execute("PRAGMA ignore_check_constraints = 1")  # rows are written as they were
            else:
                connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            return connection

    @contextlib.contextmanager
    def _looking(self, connection: apsw.Connection) -> Iterator[apsw.Connection]:
        """All that is read in the block is of one moment; and the file is locked once, not for each row."""
        if not connection.in_transaction:
            connection.execute("BEGIN")
        try:
            self._require_same()
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _transaction(self, connection: apsw.Connection) -> Iterator[Callable[[bool], None]]:
        """A transaction that alone may write; `end(True)` commits it, all else rolls it back."""
        connection.execute("BEGIN IMMEDIATE")

        def end(is_good: bool) -> None:
            if is_good:
                self._require_same()
            connection.execute("COMMIT" if is_good else "ROLLBACK")

        try:
            self._require_same()
            yield end
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    # --- Looking ----------------------------------------------------------------------------------------------------

    def schema(self) -> Schema:
        with translated(self._where):
            tables = tables_of(self._acting)
        return Schema({each.place: each.as_table() for each in tables.values() if not each.is_shadow})

    def read(self, operation: Sql, mode: Mode) -> Reading:
        writes: dict[str, frozenset[str]] = {}
        reads: set[str] = set()
        defines: set[str] = set()
        is_settled = True
        with translated(self._where):
            tables = tables_of(self._acting)
            for number in range(len(operation.statements)):
                try:
                    seen = self._step(self._acting, operation, number, runs=False)
                except _apsw_sql_error():
                    if defines:  # it may be about what those before it make
                        continue
                    raise
                _require_mode(seen, mode, number + 1)
                is_settled = is_settled and seen.is_settled
                defines |= {place_of("main", name) for _, name in (*seen.created, *seen.changed)}
                for name, verbs in seen.writes.items():
                    place = place_of("main", name)
                    writes[place] = writes.get(place, frozenset()) | verbs
                reads |= reads_of(operation, number, seen, tables)
        return Reading(writes, frozenset(reads), frozenset(defines), is_settled)

    def lease(self, tables: Collection[str]) -> None:
        """See `Engine`: this process has the whole file."""

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode, planned: Effect | None = None) -> Effect:
        if mode is Mode.CLONE:
            with cloned(self._where, self._acting, self._settings) as (clone, before):
                return self._run(clone, operation, mode, before=before)
        with translated(self._where), without_collection(), self._transaction(self._acting) as end:
            if planned is not None and self._is_version_of(planned):
                return planned
            effect = self._run(self._acting, operation, mode)
            end(False)
            return effect

    def perform(self, operation: Sql, keep: Keep, planned: Effect | None = None) -> None:
        with translated(self._where), without_collection():
            if not self._is_done_as_planned(operation, keep, planned):
                with self._transaction(self._acting) as end:
                    keep(self._run(self._acting, operation, Mode.IMAGES), {})
                    self._commit(end)

    def _is_done_as_planned(self, operation: Sql, keep: Keep, planned: Effect | None) -> bool:
        """Run statements, and commit if by the evidence of their rehearsal they do the same; else nothing is done."""
        if planned is None:
            return False
        with self._transaction(self._acting) as end:
            if not self._is_version_of(planned):
                return False
            if self._run(self._acting, operation, Mode.IMAGES, planned) != planned:
                return False
            keep(planned, {})
            self._commit(end)
        return True

    def _commit(self, end: Callable[[bool], None]) -> None:
        self._num_commits += 1
        end(True)

    def _is_version_of(self, planned: Effect) -> bool:
        """Whether nobody has written to the file since something was rehearsed."""
        return isinstance(planned.evidence, _Evidence) and planned.evidence.version == self._version(self._acting)

    def _version(self, connection: apsw.Connection) -> tuple[int, int]:
        """Another one whenever anybody has committed a change of the file. Asked in a transaction."""
        ((version,),) = connection.execute("PRAGMA main.data_version")
        return version, self._num_commits

    def _run(
        self,
        connection: apsw.Connection,
        operation: Sql,
        mode: Mode,
        planned: Effect | None = None,
        before: apsw.Connection | None = None,
    ) -> Effect:
        """Run statements in the transaction that is open; what they did.

        `planned` is believed to be that, if they change the rows of its evidence; if not, nothing is told of rows.
        `before` sees the file as it was.
        """
        tables, objects, counters = tables_of(connection), objects_of(connection), counters_of(connection)
        reads: set[str] = set()
        is_settled = True
        with Recorder(connection, tables, self._settings, reads_rows=planned is None) as recorder:
            try:
                for number in range(len(operation.statements)):
                    seen = self._step(connection, operation, number, is_too_much=lambda: recorder.is_too_much)
                    _require_mode(seen, mode, number + 1)
                    is_settled = is_settled and seen.is_settled
                    reads |= reads_of(operation, number, seen, tables)
                connection.execute("SAVEPOINT flushed")  # virtual tables write what they had put off
                connection.execute("RELEASE flushed")
            except BaseException:
                if recorder.is_too_much:
                    raise InputError(f"{self._where}: {too_many(self._settings.max_rows)}") from None
                raise
        after = tables_of(connection)
        if planned is None:
            with self._looking(before or self._writing) as then:
                effects = tuple(recorder.table_effects(after, then))
        else:
            effects = planned.tables if recorder.rowids == planned.evidence.rowids else ()
        made = tuple(_created(objects, objects_of(connection), after, mode))
        effect = Effect(
            effects,
            created=made,
            counters=_moved(counters, counters_of(connection)),
            reads=frozenset(reads | {key for each in effects for key in parents_of(each, after)}),
            is_settled=is_settled,
        )
        require_limits(
            self._where,
            effect,
            self._settings,
            lambda place: self._num_left(connection, after[name_of(place)]),
        )
        if planned is None and mode is Mode.IMAGES and is_settled and not made and recorder.is_predictable:
            return replace(effect, evidence=_Evidence(self._version(self._acting), recorder.rowids))
        return effect

    def _step(
        self,
        connection: apsw.Connection,
        operation: Sql,
        number: int,
        *,
        runs: bool = True,
        is_too_much: Callable[[], bool] = bool,
    ) -> Seen:
        """Compile a statement, and run it until it is too much; what it is about."""
        until = time.monotonic() + self._settings.statement_timeout_s
        connection.set_progress_handler(lambda: time.monotonic() > until or is_too_much(), 10_000)
        try:
            with without_foreign_keys(connection):
                own = self._given(connection, operation, number, runs=False)
            seen = self._given(connection, operation, number, runs=False)
            seen.reads_of_keys = seen.reads - own.reads
            if runs:
                done = self._given(connection, operation, number, runs=True)
                done.reads_of_keys = seen.reads_of_keys
                return done
        finally:
            connection.set_progress_handler(None)
        return seen

    def _given(self, connection: apsw.Connection, operation: Sql, number: int, *, runs: bool) -> Seen:
        text, allows_code = operation.statements[number], self._settings.allows_code
        with guarded(connection, text, number + 1, allows_code=allows_code, runs=runs) as seen:
            for _ in connection.execute(text, operation.values_of(number) or None):
                pass
        return seen

    def _num_left(self, connection: apsw.Connection, table: TableMaker) -> int:
        ((left,),) = connection.execute(f"SELECT count(*) FROM main.{quoted(table.name)}")
        return left

    # --- Taking back ------------------------------------------------------------------------------------------------

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the rows tell, since all of them were written at once or none."""
        with translated(self._where), self._looking(self._writing):
            rows = Rows(self._writing)
            is_before, is_after = rows.contested(effect), rows.contested(effect.inverse())
        if (told := effect.has_come_true(is_before, is_after)) is None:
            raise InDoubt(f"{self._where}: others have changed all that would tell whether it was committed")
        return told

    def contested(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with translated(self._where), without_collection(), self._looking(self._writing):
            found = Rows(self._writing).contested(effect)
            self._uncontested = None if found else (effect, self._version(self._writing))
            return found

    def write(self, effect: Effect, keep: Keep) -> None:
        connection = self._writing
        with translated(self._where), without_collection(), self._transaction(connection) as end:
            rows = Rows(connection)
            if not self._is_uncontested(effect) and (contested := rows.contested(effect)):
                raise Contested.over(self._name, contested)
            connection.execute("SAVEPOINT written")
            self._written(rows, effect)
            if broken := self._broken(connection):
                connection.execute("ROLLBACK TO written")
                if broken - self._broken(connection):
                    raise Rejected(f"{self._where}: rows of others refer to what it would take away, or it to theirs")
                self._written(Rows(connection), effect)
            connection.execute("RELEASE written")
            keep(effect, {})
            self._commit(end)
            self._uncontested = None

    def _is_uncontested(self, effect: Effect) -> bool:
        """Whether it was found so, and nobody has written to the file since."""
        known, version = self._uncontested or (None, None)
        return known is effect and version == self._version(self._writing)

    def _written(self, rows: Rows, effect: Effect) -> None:
        import apsw

        try:
            rows.write(effect)
        except (apsw.ConstraintError, apsw.SQLError) as error:
            kind = type(error).__name__.removesuffix("Error")
            raise Rejected(f"{self._where}: what others did since stands against it ({kind})") from None

    def _broken(self, connection: apsw.Connection) -> set[Any]:
        """Foreign keys that refer to nothing."""
        if not self._settings.enforces_foreign_keys:
            return set()
        return set(connection.execute("PRAGMA foreign_key_check"))

    # --- Holding ----------------------------------------------------------------------------------------------------

    def hold(self, action: str, operation: Sql, keep: Keep) -> None:
        found: list[Effect] = []
        self._holding.hold(
            action,
            lambda connection: found.append(self._run(connection, operation, Mode.HOLD)),
            lambda mark: keep(found[0], mark),
        )

    def held(self, action: str, mark: Json) -> Held:
        if self._holding.is_open(action):
            return Held(True)
        return Held(False, self._holding.ended(action))

    def end_hold(self, action: str, *, commit: bool) -> None:
        self._holding.end(action, commit=commit)

    def close(self) -> None:
        self._holding.close()
        self._opened.close()


def open_database(name: str, connection: DatabaseConnection, password: str) -> SqliteDatabase:
    """See `Open`."""
    try:
        import apsw  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise HostError(f"database {name}: SQLite needs {error.name}. Fix: {install_command('databases')}") from None
    if not connection.path:
        raise InputError(f"database {name}: engine sqlite needs the path of a file")
    if connection.schemas not in ((), ("main",)):
        raise InputError(f"database {name}: schemas {connection.schemas}: an SQLite file has the schema main alone")
    return SqliteDatabase(name, connection)


def _require_mode(seen: Seen, mode: Mode, number: int) -> None:
    """Check that definitions can be taken back in a mode."""
    if mode is Mode.HOLD:
        return
    if seen.changed:
        kind, name = min(seen.changed)
        raise InputError(
            f'statement {number}: alters or drops {kind} {name}, which images of rows do not hold; mode "hold" does'
        )
    if odd := [kind for kind, _ in seen.created if kind not in _INVERTIBLE]:
        raise InputError(f'statement {number}: creates a {odd[0]}, which needs mode "hold"')


def _created(before: Objects, after: Objects, tables: dict[str, TableMaker], mode: Mode) -> Iterator[Definition]:
    if mode is not Mode.HOLD and any(after.get(place) != sql for place, sql in before.items()):
        raise InputError('a definition was altered, which images of rows do not hold; mode "hold" does')
    for (kind, name), sql in after.items():
        if before.get((kind, name)) != sql:
            layout = tables[name].layout if kind == "table" and name in tables else ""
            yield Definition(kind, place_of("main", name), sql, layout)


def _moved(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[Any, Any]]:
    names = {**before, **after}
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _apsw_sql_error() -> type[Exception]:
    import apsw

    return apsw.SQLError
