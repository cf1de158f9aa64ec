"""Grounds of MariaDB: the tables of some schemas, as the server tells them, made again on a server of our own.

No row is read. Views and triggers are left out, since the engine lets no statement near them that is to be taken back.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping
from dataclasses import replace

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts, catalogue_of
from autoclave.runtime.databases.mariadb.connection import Server, do, rows
from autoclave.runtime.databases.mariadb.parsing import parsed
from autoclave.runtime.databases.mariadb.values import parameter, quoted
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import names_of
from autoclave.runtime.databases.reversal.ground import Content, Ground, Shape, Value
from autoclave.runtime.databases.schema import Schema, Table
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.mariadb import USER, mariadb_throwaway

_STATEMENT_S = 2.0
_ENGINES = ("InnoDB", "Aria", "MyISAM", "MEMORY")
"""Those whose tables hold their rows themselves, and reach nothing else."""
_CREATING = "NO_DIR_IN_CREATE,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
_LABEL = re.compile(r"'((?:[^']|'')*)'")


class MariadbGround:
    """See `Ground`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        where = f"database {name}"
        with contextlib.closing(Server(name, settings, password)) as source, source.looking() as connection:
            schemas, catalogue = source.schemas, catalogue_of(connection, source.schemas)
            ((version, case),) = rows(connection, "SELECT VERSION(), @@lower_case_table_names")
            made = [*_sequences(connection, catalogue), *_tables(connection, catalogue)]
        server = mariadb_throwaway(version, int(case))
        trial = DatabaseConnection(
            engine="mariadb",
            host=f"{server.folder}",
            user=USER,
            dbname=schemas[0],
            schemas=schemas,
            statement_timeout_s=_STATEMENT_S,
        )
        with contextlib.ExitStack() as opening:
            opening.enter_context(server.schemas(schemas))
            self.owner = server.owner
            self._make(where, made)
            self.acting = Server(name, trial, "")
            opening.callback(self.acting.close)
            with self.acting.looking() as connection:
                catalogue = catalogue_of(connection, schemas)
            self.stored = [each for each in catalogue.tables.values() if each.kind == "BASE TABLE"]
            self.shape = _shape(self.stored, [statement for _, statement in made])
            self._opened = opening.pop_all()

    def _make(self, where: str, made: list[tuple[str, str]]) -> None:
        import pymysql

        do(self.owner, f"SET SESSION sql_mode = '{_CREATING}', foreign_key_checks = 0")
        for place, statement in made:
            schema, name = names_of(place)
            try:
                do(self.owner, f"USE {quoted(schema)}")
                do(self.owner, statement)
            except pymysql.Error as error:
                raise InputError(
                    f"{where}: undo: cannot be tested: {schema}.{name} cannot be made elsewhere "
                    f"({error.args[0] if error.args else type(error).__name__}); leave it out, and rows are kept"
                ) from None

    @contextlib.contextmanager
    def world(self) -> Generator[MariadbWorld]:
        for table in self.stored:
            do(self.owner, f"DELETE FROM {table.quoted}")
        yield MariadbWorld(self)

    def close(self) -> None:
        self._opened.close()


class MariadbWorld:
    """See `World`."""

    def __init__(self, ground: MariadbGround) -> None:
        self._ground, self._acting = ground, ground.acting

    def insert(self, table: str, row: Mapping[str, Value]) -> bool:
        import pymysql

        names, values = ", ".join(map(quoted, row)), ", ".join(map(_literal, row.values()))
        try:
            do(self._acting.connection, f"INSERT INTO {quoted(*names_of(table))} ({names}) VALUES ({values})")
        except pymysql.Error:
            return False
        return True

    def refer(self, table: str, key: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        import pymysql

        setting = ", ".join(f"{quoted(name)} = {_literal(value)}" for name, value in values.items())
        where = " AND ".join(f"{quoted(name)} = {_literal(value)}" for name, value in key.items())
        with contextlib.suppress(pymysql.Error):
            do(self._acting.connection, f"UPDATE {quoted(*names_of(table))} SET {setting} WHERE {where}")

    def settle(self) -> None:
        """See `World`. Counters go on after the numbers that there are."""
        for table in self._ground.stored:
            if table.counter:
                do(self._ground.owner, f"ALTER TABLE {table.quoted} AUTO_INCREMENT = 1")

    def run(self, operation: Sql) -> None:
        with self._acting.transaction() as connection:
            for number, text in enumerate(operation.statements):
                do(connection, parsed(text, operation.values_of(number), number + 1).text)
            self._acting.commit(connection)

    def content(self) -> Content:
        connection = self._acting.connection
        return {
            table.place: tuple(sorted(map(repr, rows(connection, f"SELECT {table.reading()} FROM {table.quoted}"))))
            for table in self._ground.stored
        }

    def counters(self) -> Mapping[str, object]:
        names = ", ".join(f"'{schema}'" for schema in dict.fromkeys(each.schema for each in self._ground.stored))
        query = (
            "SELECT CONCAT('AUTO_INCREMENT of ', table_schema, '/', table_name), auto_increment FROM "
            f"information_schema.tables WHERE table_schema IN ({names}) AND auto_increment IS NOT NULL"
        )
        return dict(rows(self._acting.connection, query)) if names else {}


def _literal(value: Value) -> str:
    return f"x'{value.hex()}'" if isinstance(value, bytes) else parameter(value)


def _tables(connection: object, catalogue: Catalogue) -> Generator[tuple[str, str]]:
    for place, table in catalogue.tables.items():
        if table.kind == "BASE TABLE" and table.engine in _ENGINES:
            yield place, rows(connection, f"SHOW CREATE TABLE {table.quoted}")[0][1]


def _sequences(connection: object, catalogue: Catalogue) -> Generator[tuple[str, str]]:
    """Those that defaults of columns may name, so before the tables."""
    for place, table in catalogue.tables.items():
        if table.kind == "SEQUENCE":
            yield place, rows(connection, f"SHOW CREATE SEQUENCE {table.quoted}")[0][1]


def _shape(tables: list[TableFacts], texts: list[str]) -> Shape:
    """What rows must be like: labels are told here, and numbers that count up are given."""
    found: dict[str, Table] = {}
    labels: dict[str, tuple[str, ...]] = {}
    folded = {
        table.place: frozenset(each.name for each in table.columns if each.collation and "_bin" not in each.collation)
        for table in tables
    }
    for table in tables:
        told = table.as_table()
        columns = tuple(
            replace(column, kind=facts.whole_kind, fills_itself=facts.is_generated)
            for column, facts in zip(told.columns, table.columns, strict=True)
        )
        found[table.place] = replace(told, columns=columns)
        for facts in table.columns:
            if facts.kind in ("enum", "set"):
                labels[facts.whole_kind] = tuple(each.replace("''", "'") for each in _LABEL.findall(facts.whole_kind))
    return Shape(Schema(found), labels, tuple(texts), "mysql", folded)


def open_ground(name: str, connection: DatabaseConnection, password: str) -> Ground:
    """See `Reversals`."""
    return MariadbGround(name, connection, password)


def outline(image: Image) -> Image:
    """See `Reversals`."""
    return image
