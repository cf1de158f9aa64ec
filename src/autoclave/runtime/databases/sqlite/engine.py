"""One SQLite file as an engine of databases.

Theory of operation. Statements run in one immediate transaction on a connection that compiles no more than one action
at a time (`barrier`), while a hook hears every row that changes (`rows`). Rows are written back on another
connection, without triggers and foreign keys, which are checked at the end (`rows`). A commit is atomic: whether it
came about is told by the rows themselves. One session of ours has a file at a time: the lease is an abstract socket
with its device and inode in the name, which leaves no file behind and ends with the process.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import (
    TOO_MANY,
    FoundRows,
    Json,
    Keep,
    OpenTransactions,
    Reading,
    Rejected,
    RowConflict,
    SqlEngine,
)
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.servers import translating
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.sqlite.barrier import Seen, guarded, parents_of, reads_of, without_foreign_keys
from autoclave.runtime.databases.sqlite.catalogue import (
    OpenFiles,
    TableFacts,
    counters_of,
    definitions_of,
    lease_of,
    tables_of,
)
from autoclave.runtime.databases.sqlite.rows import Recorder, Rows, detach
from autoclave.runtime.databases.tables import place_of

_PLAIN = re.compile(
    r"(UNIQUE|NOT NULL) constraint failed: [\w.$, ]+|FOREIGN KEY constraint failed"
    r"|no such (table|column|index|view): \S+"
    r"|(incomplete input|near \"[^\"'\s]{1,40}\": syntax error|datatype mismatch|interrupted)"
    r"|table \S+ has \d+ columns but \d+ values were supplied|table \S+ may not be (modified|dropped)"
)
"""Messages whose texts are names of the schema and of the statement itself."""


class SqliteDatabase(SqlEngine):
    """See `Engine`."""

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        super().__init__(name, settings)
        self._known: tuple[int, dict[str, TableFacts]] = (-1, {})
        self.transactions = OpenTransactions(self)
        with contextlib.ExitStack() as opening:
            path = Path(settings.path)
            if not path.is_file():
                raise InputError(f"database {name}: path {path}: there is no such file")
            opening.callback(lease_of(name, path).close)
            self._acting = opening.enter_context(contextlib.closing(self.connect()))
            self._writing = opening.enter_context(contextlib.closing(self.connect(enforces=False)))
            with self.translated():
                self._tables(self._acting)
            self._files = OpenFiles(path)
            self._opened = opening.pop_all()

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return translating(self.where, apsw.Error, explained)

    def connect(self, *, enforces: bool | None = None) -> apsw.Connection:
        with self.translated():
            connection = apsw.Connection(self.settings.path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=0)
            connection.set_busy_timeout(int(self.settings.lock_timeout_s * 1000))
            is_on = self.settings.enforces_foreign_keys if enforces is None else enforces
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
    def _transaction(self, connection: apsw.Connection, kind: str = "IMMEDIATE") -> Iterator[apsw.Connection]:
        """A transaction that is rolled back unless the block commits it; all that is read in it is of one moment.

        `kind`: IMMEDIATE: it alone may write; DEFERRED: it only reads.
        """
        try:
            self._begin(connection, kind)
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            detach(connection)

    def _begin(self, connection: apsw.Connection, kind: str = "IMMEDIATE") -> None:
        connection.execute(f"BEGIN {kind}")
        self._files.require_same(self.where)

    def commit(self, connection: apsw.Connection) -> None:
        with self.translated():
            self._files.require_same(self.where)
            connection.execute("COMMIT")

    def _tables(self, connection: apsw.Connection) -> dict[str, TableFacts]:
        """The tables as they are committed; the connection has not changed any."""
        if (version := _version(connection)) != self._known[0]:
            self._known = version, tables_of(connection)
        return self._known[1]

    def told(self) -> Iterator[str]:
        with self.translated():
            tables = self._tables(self._acting)
        for _, table in sorted(tables.items()):
            yield from table.told() if table.kind != "shadow" else ()

    def read(self, operation: Sql, mode: Mode) -> Reading:
        writes: dict[str, frozenset[str]] = {}
        reads: set[str] = set()
        defines: set[str] = set()
        with self.translated():
            tables = self._tables(self._acting)
            for number in range(len(operation.statements)):
                try:
                    seen = self._step(self._acting, operation, number, runs=False)
                except apsw.SQLError:
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

    @contextlib.contextmanager
    def running(self, operation: Sql, mode: Mode) -> Iterator[tuple[apsw.Connection, Effect]]:
        with self.translated(), self._transaction(self._acting):
            yield self._acting, self._run(self._acting, operation, mode)

    def run_open(self, connection: apsw.Connection, operation: Sql) -> tuple[Effect, Json]:
        self._begin(connection)
        before = definitions_of(connection)
        effect = self._run(connection, operation, Mode.TRANSACTION)
        definitions = [before, definitions_of(connection)]
        return effect, {"definitions": definitions} if definitions[0] != definitions[1] else {}

    def _run(self, connection: apsw.Connection, operation: Sql, mode: Mode) -> Effect:
        """Run statements in the transaction that is open; return what they did."""
        tables, version, counters = self._tables(connection), _version(connection), counters_of(connection)
        reads: set[str] = set()
        is_deterministic = True
        with Recorder(connection, tables, self.settings) as recorder:
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
                    raise InputError(f"{self.where}: {TOO_MANY.format(self.settings.max_rows)}") from None
                raise
        is_defined_anew = _version(connection) != version
        after = tables_of(connection) if is_defined_anew else tables
        with self._transaction(self._writing, "DEFERRED") as then:
            effect = recorder.effect(after, then)
        if mode is not Mode.TRANSACTION and is_defined_anew:
            raise InputError(f"{self.where}: a definition was altered, which no statement says")
        parents = {key for each in effect.tables for key in parents_of(each, after)}
        return self.require_few(
            replace(
                effect,
                counters=_moved(counters, counters_of(connection)),
                reads=frozenset(reads | parents),
                is_deterministic=is_deterministic,
            )
        )

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
        until = time.monotonic() + self.settings.statement_timeout_s
        connection.set_progress_handler(lambda: time.monotonic() > until or is_too_much(), 10_000)
        reads_of_keys = set[str]()
        try:
            if any(table.foreign_keys for table in self._known[1].values()):
                with without_foreign_keys(connection):
                    own = self._given(connection, operation, number, runs=False)
                reads_of_keys = self._given(connection, operation, number, runs=False).reads - own.reads
            seen = self._given(connection, operation, number, runs=runs)
            seen.reads_of_keys = reads_of_keys
        finally:
            connection.set_progress_handler(None)
        return seen

    def _given(self, connection: apsw.Connection, operation: Sql, number: int, *, runs: bool) -> Seen:
        text = operation.statements[number]
        with guarded(connection, text, number + 1, runs=runs) as seen:
            for _ in connection.execute(text, operation.values_of(number) or None):
                pass
        return seen

    @contextlib.contextmanager
    def _rows(self, effect: Effect, kind: str = "DEFERRED") -> Iterator[Rows]:
        with self.translated(), self._transaction(self._writing, kind) as connection:
            yield Rows(connection, effect)

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the definitions or the rows tell, since all of them were written at once or none."""
        with self._rows(effect) as rows:
            if (now := definitions_of(self._writing)) in mark.get("definitions", ()):
                return now == mark["definitions"][1]
            tables = self._tables(self._writing)
            not_before = rows.conflicting(tables, by_rowids=True)
            not_after = rows.conflicting(tables, by_rowids=True, forwards=False)
        return effect.has_come_true(self.where, not_before, not_after)

    def conflicting(self, effect: Effect) -> FoundRows:
        with self._rows(effect) as rows:
            return rows.conflicting(self._tables(self._writing))

    def write(self, effect: Effect, keep: Keep) -> None:
        connection = self._writing
        with self._rows(effect, "IMMEDIATE") as rows:
            tables = self._tables(connection)
            if conflicting := rows.conflicting(tables):
                raise RowConflict.over(self.name, conflicting)
            connection.execute("SAVEPOINT written")
            self._written(rows, tables)
            if broken := self._broken(connection):
                connection.execute("ROLLBACK TO written")
                if broken - self._broken(connection):
                    raise Rejected(f"{self.where}: rows of others refer to what it would take away, or it to theirs")
                self._written(rows, tables)
            connection.execute("RELEASE written")
            keep(effect, {})
            self.commit(connection)

    def _written(self, rows: Rows, tables: Mapping[str, TableFacts]) -> None:
        try:
            rows.write(tables)
        except (apsw.ConstraintError, apsw.SQLError) as error:
            kind = type(error).__name__.removesuffix("Error")
            raise Rejected(f"{self.where}: what others did since stands against it ({kind})") from None

    def _broken(self, connection: apsw.Connection) -> set[Any]:
        if not self.settings.enforces_foreign_keys:
            return set()
        return set(connection.execute("PRAGMA foreign_key_check"))

    def close(self) -> None:
        self.transactions.close()
        self._opened.close()


def open_database(name: str, connection: DatabaseConnection, password: str) -> SqliteDatabase:
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


def explained(error: Exception) -> AutoclaveError:
    kind = type(error).__name__
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return HostError("others write to it. Fix: wait, or give a longer lock_timeout_s")
    if isinstance(error, apsw.ReadOnlyError):
        return HostError("may be read only. Fix: let this user write the file and its folder")
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError):
        return HostError(f"cannot be written ({kind}). Fix: look at its disk")
    if isinstance(error, apsw.NotADBError):
        return InputError("is no SQLite database")
    if isinstance(error, apsw.InterruptError):
        return InputError("a statement ran longer than statement_timeout_s")
    return InputError(_words(error))


def _words(error: Exception) -> str:
    message = re.sub(r"^\w+Error: ", "", str(error))
    if _PLAIN.fullmatch(message):
        return message
    if message.startswith("CHECK constraint failed"):
        return "a CHECK constraint failed"
    return f"SQLite refuses it ({type(error).__name__}); its words may hold values, and are left out"
