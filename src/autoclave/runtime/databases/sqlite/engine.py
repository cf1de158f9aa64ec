"""One SQLite file as an engine of databases.

Theory of operation. Statements run in one immediate transaction on a connection that compiles no more than one action
at a time (`barrier`), while a hook hears every row that changes (`recorder`). Rows are written back on another
connection, without triggers and foreign keys, which are checked at the end (`rows`). A commit is atomic: whether it
came about is told by the rows themselves. One session of ours has a file at a time: the lease is an abstract socket
with its device and inode in the name, which leaves no file behind and ends with the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.runtime.databases.effects import (
    Effect,
    Image,
)
from autoclave.runtime.databases.engine import Json, Keep, Reading, Rejected, RowConflict, TransactionState
from autoclave.runtime.databases.limits import require_limits, too_many
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of, place_of
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.sqlite.barrier import Seen, guarded, without_foreign_keys
from autoclave.runtime.databases.sqlite.catalogue import (
    TableMaker,
    counters_of,
    objects_of,
    quoted,
    tables_of,
)
from autoclave.runtime.databases.sqlite.dependences import parents_of, reads_of
from autoclave.runtime.databases.sqlite.failures import translated
from autoclave.runtime.databases.sqlite.open_transactions import OpenTransactions
from autoclave.runtime.databases.sqlite.place import OpenFiles, lease_of
from autoclave.runtime.databases.sqlite.recorder import Recorder
from autoclave.runtime.databases.sqlite.rows import Rows, detach, loaded
from autoclave.runtime.interface import InDoubt

if TYPE_CHECKING:
    import apsw


class SqliteDatabase:
    """See `Engine`."""

    modes = frozenset({Mode.IMAGES, Mode.TRANSACTION})

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        self._name, self._settings = name, settings
        self._known: tuple[int, dict[str, TableMaker]] = (-1, {})
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
                self._tables(self._acting)
            self._files = OpenFiles(path)
            self._opened = opening.pop_all()
        self._transactions = OpenTransactions(
            self._connect, self._require_same, settings.transaction_timeout_s, self._where
        )

    @property
    def _where(self) -> str:
        return f"database {self._name}"

    def _require_same(self) -> None:
        self._files.require_same(self._where)

    def _connect(self, *, enforces: bool | None = None) -> apsw.Connection:
        import apsw

        with translated(self._where):
            connection = apsw.Connection(self._settings.path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=0)
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
            detach(connection)

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
            detach(connection)

    def _tables(self, connection: apsw.Connection) -> dict[str, TableMaker]:
        """The tables as they are committed; the connection has not changed any."""
        if (version := _version(connection)) != self._known[0]:
            self._known = version, tables_of(connection)
        return self._known[1]

    # --- Looking ----------------------------------------------------------------------------------------------------

    def schema(self) -> Schema:
        with translated(self._where):
            tables = self._tables(self._acting)
        return Schema({each.place: each.as_table() for each in tables.values() if not each.is_shadow})

    def read(self, operation: Sql, mode: Mode) -> Reading:
        writes: dict[str, frozenset[str]] = {}
        reads: set[str] = set()
        defines: set[str] = set()
        with translated(self._where):
            tables = self._tables(self._acting)
            for number in range(len(operation.statements)):
                try:
                    seen = self._step(self._acting, operation, number, runs=False)
                except _apsw_sql_error():
                    if defines:  # it may be about what those before it make
                        continue
                    raise
                _require_mode(seen, mode, number + 1)
                defines |= {place_of("main", name) for _, name in (*seen.created, *seen.changed)}
                for name, verbs in seen.writes.items():
                    place = place_of("main", name)
                    writes[place] = writes.get(place, frozenset()) | verbs
                reads |= reads_of(operation, number, seen, tables)
        return Reading(writes, frozenset(reads), frozenset(defines))

    def lease(self, tables: Collection[str]) -> None:
        """See `Engine`: this process has the whole file."""

    # --- Doing ------------------------------------------------------------------------------------------------------

    def rehearse(self, operation: Sql, mode: Mode) -> Effect:
        with translated(self._where), self._transaction(self._acting) as end:
            effect = self._run(self._acting, operation, mode)
            end(False)
            return effect

    def perform(self, operation: Sql, keep: Keep) -> None:
        with translated(self._where), self._transaction(self._acting) as end:
            keep(self._run(self._acting, operation, Mode.IMAGES), {})
            end(True)

    def _run(self, connection: apsw.Connection, operation: Sql, mode: Mode) -> Effect:
        """Run statements in the transaction that is open; return what they did."""
        tables, version, counters = self._tables(connection), _version(connection), counters_of(connection)
        reads: set[str] = set()
        is_deterministic = True
        with Recorder(connection, tables, self._settings) as recorder:
            try:
                for number in range(len(operation.statements)):
                    seen = self._step(connection, operation, number, is_too_much=lambda: recorder.is_too_much)
                    _require_mode(seen, mode, number + 1)
                    is_deterministic = is_deterministic and seen.is_deterministic
                    reads |= reads_of(operation, number, seen, tables)
                connection.execute("SAVEPOINT flushed")  # virtual tables write what they had put off
                connection.execute("RELEASE flushed")
            except BaseException:
                if recorder.is_too_much:
                    raise InputError(f"{self._where}: {too_many(self._settings.max_rows)}") from None
                raise
        is_defined_anew = _version(connection) != version
        after = tables_of(connection) if is_defined_anew else tables
        with self._looking(self._writing) as then:
            effect = recorder.effect(after, then)
        if mode is not Mode.TRANSACTION and is_defined_anew:
            raise InputError(f"{self._where}: a definition was altered, which no statement says")
        effect = replace(
            effect,
            counters=_moved(counters, counters_of(connection)),
            reads=frozenset(reads | {key for each in effect.tables for key in parents_of(each, after)}),
            is_deterministic=is_deterministic,
        )
        require_limits(
            self._where,
            effect,
            self._settings,
            lambda place: self._num_left(connection, after[name_of(place)]),
        )
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
        """See `Engine`: the definitions or the rows tell, since all of them were written at once or none."""
        with translated(self._where), loaded(self._writing, effect) as rows, self._looking(self._writing):
            if (now := self._definitions(self._writing)) in mark.get("definitions", ()):
                return now == mark["definitions"][1]
            tables = self._tables(self._writing)
            not_before = rows.conflicting(tables, by_rowids=True)
            not_after = rows.conflicting(tables, by_rowids=True, forwards=False)
        if (told := effect.has_come_true(not_before, not_after)) is None:
            raise InDoubt(f"{self._where}: others have changed all that would tell whether it was committed")
        return told

    def conflicting(self, effect: Effect) -> dict[tuple[str, str], Image | None]:
        with translated(self._where), loaded(self._writing, effect) as rows, self._looking(self._writing):
            return rows.conflicting(self._tables(self._writing))

    def write(self, effect: Effect, keep: Keep) -> None:
        connection = self._writing
        with (
            translated(self._where),
            loaded(self._writing, effect) as rows,
            self._transaction(connection) as end,
        ):
            tables = self._tables(connection)
            if conflicting := rows.conflicting(tables):
                raise RowConflict.over(self._name, conflicting)
            connection.execute("SAVEPOINT written")
            self._written(rows, tables)
            if broken := self._broken(connection):
                connection.execute("ROLLBACK TO written")
                if broken - self._broken(connection):
                    raise Rejected(f"{self._where}: rows of others refer to what it would take away, or it to theirs")
                self._written(rows, tables)
            connection.execute("RELEASE written")
            keep(effect, {})
            end(True)

    def _written(self, rows: Rows, tables: Mapping[str, TableMaker]) -> None:
        import apsw

        try:
            rows.write(tables)
        except (apsw.ConstraintError, apsw.SQLError) as error:
            kind = type(error).__name__.removesuffix("Error")
            raise Rejected(f"{self._where}: what others did since stands against it ({kind})") from None

    def _broken(self, connection: apsw.Connection) -> set[Any]:
        """Foreign keys that refer to nothing."""
        if not self._settings.enforces_foreign_keys:
            return set()
        return set(connection.execute("PRAGMA foreign_key_check"))

    # --- Open transactions -----------------------------------------------------------------------------------------

    def open_transaction(self, action: str, operation: Sql, keep: Keep) -> None:
        found: list[Effect] = []
        definitions: list[str] = []

        def run(connection: apsw.Connection) -> None:
            definitions.append(self._definitions(connection))
            found.append(self._run(connection, operation, Mode.TRANSACTION))
            definitions.append(self._definitions(connection))

        def keep_all(mark: Json) -> None:
            changed = {"definitions": definitions} if definitions[0] != definitions[1] else {}
            keep(found[0], {**mark, **changed})

        self._transactions.begin(action, run, keep_all)

    def _definitions(self, connection: apsw.Connection) -> str:
        """Return a digest of all that is defined."""
        return hashlib.sha256(repr(sorted(objects_of(connection).items())).encode()).hexdigest()

    def is_durable(self) -> bool:
        return False

    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        if self._transactions.is_open(action):
            return TransactionState(True)
        return TransactionState(False, self._transactions.ended(action))

    def end_transaction(self, action: str, *, commit: bool) -> None:
        self._transactions.end(action, commit=commit)

    def close(self) -> None:
        self._transactions.close()
        self._opened.close()


def open_database(name: str, connection: DatabaseConnection, password: str) -> SqliteDatabase:
    """See `open_engine`."""
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
    """Check that a statement that defines something is done in an open transaction."""
    if mode is not Mode.TRANSACTION and (defined := seen.created | seen.changed):
        kind, name = min(defined)
        raise InputError(
            f'statement {number}: creates, alters or drops {kind} {name}, which mode "images" cannot undo. '
            'Fix: use mode "transaction"'
        )


def _version(connection: apsw.Connection) -> int:
    """A number that is another one after each change of a definition."""
    ((version,),) = connection.execute("PRAGMA main.schema_version")
    return version


def _moved(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[Any, Any]]:
    names = {**before, **after}
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _apsw_sql_error() -> type[Exception]:
    import apsw

    return apsw.SQLError
