"""Grounds of PostgreSQL: the schema of a database, as `pg_dump` tells it, made again on a server of our own.

No row is read. A ground has one database there, which each world finds empty and fills.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator, Mapping

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import names_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, catalogue_of, quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.failures import translated
from autoclave.runtime.databases.reversal.ground import Content, Ground, Shape, Value
from autoclave.runtime.databases.schema import Column, Reference, Schema, Table
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.postgresql import ROLE, dumped, postgres_throwaway

_STATEMENT_MS = 2000
_OF_PSQL = re.compile(r"^\\(un)?restrict \S+$", re.MULTILINE)
_TEXTS = """
SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k WHERE k.connamespace = ANY (%(spaces)s)
UNION ALL SELECT pg_catalog.pg_get_triggerdef(t.oid) || ' ' || pg_catalog.pg_get_functiondef(t.tgfoid)
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = ANY (%(spaces)s)
UNION ALL SELECT c.relname || ' AS ' || pg_catalog.pg_get_viewdef(c.oid) FROM pg_catalog.pg_class c
    WHERE c.relkind IN ('v', 'm') AND c.relnamespace = ANY (%(spaces)s)
UNION ALL SELECT pg_catalog.pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_class c ON c.oid = i.indrelid WHERE i.indpred IS NOT NULL AND c.relnamespace = ANY (%(spaces)s)
"""
_LABELS = """
SELECT pg_catalog.format_type(enumtypid, NULL), pg_catalog.array_agg(enumlabel::text ORDER BY enumsortorder)
FROM pg_catalog.pg_enum GROUP BY 1
"""
_DOMAINS = """
SELECT pg_catalog.format_type(oid, NULL), pg_catalog.format_type(typbasetype, typtypmod)
FROM pg_catalog.pg_type WHERE typtype = 'd'
"""
_MADE_OF = """
SELECT pg_catalog.md5(pg_catalog.string_agg(told, ' ' ORDER BY told)) FROM (
    SELECT a.attrelid || a.attname::text || a.atttypid || a.attnotnull::text AS told FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = ANY (%(spaces)s)
    UNION ALL SELECT k.oid || k.conname::text || k.convalidated::text FROM pg_catalog.pg_constraint k
        WHERE k.connamespace = ANY (%(spaces)s)
    UNION ALL SELECT t.oid || t.tgname::text || t.tgenabled::text FROM pg_catalog.pg_trigger t
    UNION ALL SELECT p.oid || p.proname::text FROM pg_catalog.pg_proc p WHERE p.pronamespace = ANY (%(spaces)s)
) told
"""
_OWNED = """
SELECT s.oid, n.nspname, c.relname, a.attname FROM pg_catalog.pg_class s
JOIN pg_catalog.pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
JOIN pg_catalog.pg_class c ON c.oid = d.refobjid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
WHERE s.relkind = 'S' AND c.relnamespace = ANY (%(spaces)s)
"""


class PostgresGround:
    """See `Ground`."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self._where, schemas = f"database {name}", settings.schemas or ("public",)
        with contextlib.closing(Server(name, settings, password)) as server:
            version = server.connection.info.server_version // 10_000
        self._server, programs = postgres_throwaway(version)
        told = dumped(
            self._where, programs, settings, schemas, password, "--schema-only", "--no-owner", "--no-privileges"
        )
        script = _OF_PSQL.sub("", told.decode())
        self._database = self._server.make_database()
        with contextlib.ExitStack() as opening:
            opening.callback(self._server.drop_database, self._database)
            self.owner = self._server.owner_of(self._database)
            opening.callback(self.owner.close)
            self._make(script)
            self.acting = self._server.connect(self._database)
            opening.callback(self.acting.close)
            self.acting.execute(f"SET search_path = {', '.join([*map(quoted, schemas), 'pg_temp'])}")
            self.acting.execute(f"SET statement_timeout = {_STATEMENT_MS}")
            self._look(schemas)
            self._opened = opening.pop_all()

    def _make(self, script: str) -> None:
        import psycopg

        self.owner.execute("DROP SCHEMA public")
        self.owner.execute(f"SET SESSION AUTHORIZATION {ROLE}")
        try:
            self.owner.execute(script.encode())
        except psycopg.Error as error:
            raise InputError(
                f"{self._where}: undo: cannot be tested: its schema cannot be made elsewhere ({error.sqlstate}); leave "
                "it out, and rows are kept"
            ) from None
        self.owner.execute("RESET SESSION AUTHORIZATION")
        self.owner.execute("SET search_path = pg_catalog")

    def _look(self, schemas: tuple[str, ...]) -> None:
        spaces = self.acting.execute("SELECT oid FROM pg_namespace WHERE nspname = ANY (%s)", (list(schemas),))
        self.spaces = {"spaces": [oid for (oid,) in spaces.fetchall()]}
        catalogue = catalogue_of(self.acting, schemas)
        domains = dict(self.acting.execute(_DOMAINS).fetchall())
        labels = {kind: tuple(found) for kind, found in self.acting.execute(_LABELS).fetchall()}
        texts = [text for (text,) in self.acting.execute(_TEXTS, self.spaces).fetchall() if text]
        self.shape = Shape(Schema(dict(_tables(catalogue, domains))), labels, tuple(texts), "postgres")
        self.stored = [table for table in catalogue.tables.values() if table.kind == "r"]
        self.owned = self.acting.execute(_OWNED, self.spaces).fetchall()

    @contextlib.contextmanager
    def world(self) -> Generator[PostgresWorld]:
        self.owner.execute("SET session_replication_role = replica")
        for table in self.stored:
            self.owner.execute(f"DELETE FROM {table.quoted}")
        yield PostgresWorld(self, self._where)

    def close(self) -> None:
        self._opened.close()


class PostgresWorld:
    """See `World`."""

    def __init__(self, ground: PostgresGround, where: str) -> None:
        self._ground, self._where, self._acting = ground, where, ground.acting
        queries = [
            f"SELECT {number}, t.*::text FROM {table.quoted} t" for number, table in enumerate(self._ground.stored)
        ]
        self._content = " UNION ALL ".join(queries)

    def insert(self, table: str, row: Mapping[str, Value]) -> bool:
        import psycopg

        names = ", ".join(map(quoted, row))
        marks = ", ".join("%s" for _ in row)
        place = quoted(*names_of(table))
        statement = f"INSERT INTO {place} ({names}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
        try:
            self._acting.execute(statement, [_text(value) for value in row.values()])
        except psycopg.Error:
            return False
        return True

    def refer(self, table: str, key: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        import psycopg

        setting = ", ".join(f"{quoted(name)} = %s" for name in values)
        where = " AND ".join(f"{quoted(name)} = %s" for name in key)
        with contextlib.suppress(psycopg.Error):
            self._acting.execute(
                f"UPDATE {quoted(*names_of(table))} SET {setting} WHERE {where}",
                [_text(value) for value in (*values.values(), *key.values())],
            )

    def settle(self) -> None:
        """See `World`. Sequences go on after the numbers that there are, as they do where they have drawn them."""
        for sequence, schema, table, column in self._ground.owned:
            most = f"SELECT max({quoted(column)}) FROM {quoted(schema, table)}"
            self._ground.owner.execute(f"SELECT setval({sequence}::oid::regclass, GREATEST(({most}), 1))")

    def run(self, operation: Sql) -> None:
        import psycopg

        with translated(self._where):
            self._acting.execute("BEGIN")
            try:
                with psycopg.RawCursor(self._acting) as cursor:
                    for number, statement in enumerate(operation.statements):
                        cursor.execute(statement.encode(), operation.values_of(number) or None, binary=True)
                self._acting.execute("COMMIT")
            finally:
                if self._acting.info.transaction_status != 0:
                    self._acting.execute("ROLLBACK")

    def content(self) -> Content:
        rows: dict[int, list[str]] = {}
        for number, row in self._acting.execute(self._content).fetchall() if self._content else ():
            rows.setdefault(number, []).append(row)
        (made_of,) = self._acting.execute(_MADE_OF, self._ground.spaces).fetchone()
        found = {table.place: tuple(sorted(rows.get(n, ()))) for n, table in enumerate(self._ground.stored)}
        return {**found, "schema": (made_of,)}

    def counters(self) -> Mapping[str, object]:
        query = "SELECT schemaname || '/' || sequencename, last_value FROM pg_catalog.pg_sequences"
        return dict(self._acting.execute(query).fetchall())


def _text(value: Value) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return None if value is None else f"{value}"


def _tables(catalogue: Catalogue, domains: Mapping[str, str]) -> Iterator[tuple[str, Table]]:
    """Tables as rows are generated for them: identities are given, partitions filled through what they belong to."""
    for place, table in catalogue.tables.items():
        columns = tuple(
            Column(name, domains.get(kind, kind), not required, bool(generated))
            for name, kind, required, generated, *_ in table.columns
        )
        references = tuple(Reference(each.columns, each.parent, each.target) for each in table.foreign_keys)
        is_odd = table.kind not in "rp" or table.root != 0
        yield place, Table(table.name, columns, table.key, table.unique, references, is_odd)


def open_ground(name: str, connection: DatabaseConnection, password: str) -> Ground:
    """See `Reversals`."""
    return PostgresGround(name, connection, password)


def outline(image: Image) -> Image:
    """See `Reversals`."""
    return image
