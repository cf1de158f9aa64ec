"""Grounds of SQLite: the schema of a file, made again in memory. The file is read once, and no row of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.reversal.ground import Content, Ground, Shape, Value
from autoclave.runtime.databases.schema import Schema
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.sqlite.barrier import guarded
from autoclave.runtime.databases.sqlite.catalogue import counters_of, objects_of, quoted, tables_of
from autoclave.runtime.databases.sqlite.failures import translated

if TYPE_CHECKING:
    import apsw

_STATEMENT_S = 2.0
_ORDER = ("table", "view", "index", "trigger")


class SqliteGround:
    """See `Ground`."""

    def __init__(self, name: str, settings: DatabaseConnection) -> None:
        import apsw

        self._where, self._settings = f"database {name}", settings
        with contextlib.ExitStack() as opening, translated(self._where):
            source = apsw.Connection(settings.path, flags=apsw.SQLITE_OPEN_READONLY)
            opening.callback(source.close)
            source.set_busy_timeout(int(settings.lock_timeout_s * 1000))
            objects = objects_of(source)
            tables = tables_of(source)
        shadows = {name for name, table in tables.items() if table.is_shadow}
        self._template = apsw.Connection(":memory:")
        statements = sorted(objects.items(), key=lambda each: _ORDER.index(each[0][0]))
        for (kind, own), statement in statements:
            if own in shadows:
                continue
            try:
                self._template.execute(statement)
            except apsw.Error as error:
                raise InputError(
                    f"{self._where}: undo: cannot be tested: {kind} {own} cannot be made elsewhere "
                    f"({type(error).__name__}); leave it out, and rows are kept"
                ) from None
        self._contents = {
            each.place: f"SELECT * FROM main.{quoted(each.name)}" for each in tables.values() if not each.is_view
        }
        writable = {each.place: each.as_table() for each in tables.values() if not each.is_shadow}
        self.shape = Shape(Schema(writable), texts=tuple(objects.values()))

    @contextlib.contextmanager
    def world(self) -> Generator[SqliteWorld]:
        import apsw

        with contextlib.closing(apsw.Connection(":memory:")) as connection:
            with connection.backup("main", self._template, "main") as backup:
                backup.step(-1)
            connection.execute(f"PRAGMA foreign_keys = {int(self._settings.enforces_foreign_keys)}")
            yield SqliteWorld(connection, self._where, self._contents)

    def close(self) -> None:
        self._template.close()


class SqliteWorld:
    """See `World`."""

    def __init__(self, connection: apsw.Connection, where: str, contents: Mapping[str, str]) -> None:
        self._connection, self._where, self._contents = connection, where, contents
        connection.execute("BEGIN")

    def insert(self, table: str, row: Mapping[str, Value]) -> bool:
        import apsw

        names = ", ".join(map(quoted, row))
        marks = ", ".join("?" for _ in row)
        try:
            self._connection.execute(
                f"INSERT INTO main.{quoted(name_of(table))} ({names}) VALUES ({marks})", tuple(row.values())
            )
        except apsw.Error:
            return False
        return True

    def refer(self, table: str, key: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        import apsw

        setting = ", ".join(f"{quoted(name)} = ?" for name in values)
        where = " AND ".join(f"{quoted(name)} IS ?" for name in key)
        with contextlib.suppress(apsw.Error):
            self._connection.execute(
                f"UPDATE main.{quoted(name_of(table))} SET {setting} WHERE {where}",
                (*values.values(), *key.values()),
            )

    def settle(self) -> None:
        import apsw

        try:
            self._connection.execute("COMMIT")
        except apsw.ConstraintError:
            self._connection.execute("ROLLBACK")

    def run(self, operation: Sql) -> None:
        connection = self._connection
        until = time.monotonic() + _STATEMENT_S
        connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            with translated(self._where):
                connection.execute("BEGIN IMMEDIATE")
                for number, statement in enumerate(operation.statements):
                    with guarded(connection, statement, number + 1, allows_code=False):
                        values = operation.values_of(number) or None
                        for _ in connection.execute(statement, values, can_cache=False):  # each is asked about anew
                            pass
                connection.execute("COMMIT")
        finally:
            connection.set_progress_handler(None)
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def content(self) -> Content:
        found = {
            table: tuple(sorted(map(repr, self._connection.execute(query)))) for table, query in self._contents.items()
        }
        return {**found, "schema": tuple(map(repr, objects_of(self._connection).items()))}

    def counters(self) -> Mapping[str, object]:
        return counters_of(self._connection)


def open_ground(name: str, connection: DatabaseConnection, password: str) -> Ground:
    """See `Reversals`."""
    return SqliteGround(name, connection)


def outline(image: Image) -> Image:
    """See `Reversals`: the number of a row counts only where a column holds it."""
    key, (_, values) = image
    return ("" if key.startswith("rowid ") else key), values
