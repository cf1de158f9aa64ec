"""What happens to rows while statements run in a transaction, by triggers that exist in this transaction alone.

For each statement on a table, whether ours, a cascade's or a trigger's, the rows that went and the rows that came are
put as text into a temporary table that the role of the statements cannot touch. At the end, equal texts of both kinds
cancel out: what is left is the effect, whatever happened in between and in whichever order. Tables that changed without
being listened to are told by the server's own counters (`evidence`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import NUM_KEYS, Image, TableEffect, as_name
from autoclave.runtime.databases.engine import Rejected
from autoclave.runtime.databases.postgresql.catalogue import SETTINGS, Catalogue, TableFacts, quoted
from autoclave.runtime.databases.postgresql.connection import TOO_MANY

_FIRST = "!autoclave"
"""Triggers fire in the order of their names."""
_IMAGES, _ROW = "pg_temp.autoclave_images", '"autoclave row"'
_MADE = f"""
CREATE TEMPORARY TABLE autoclave_images (place int, sign int, key text COLLATE "C", image text COLLATE "C")
    ON COMMIT DROP;
CREATE FUNCTION pg_temp.autoclave_hear() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off
{" ".join(f"SET {name} = '{value}'" for name, value in SETTINGS)} AS $autoclave$
DECLARE went bigint := 0; came bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        EXECUTE TG_ARGV[1]; GET DIAGNOSTICS went = ROW_COUNT;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE TG_ARGV[2]; GET DIAGNOSTICS came = ROW_COUNT;
    END IF;
    IF greatest(went, came) > TG_ARGV[0]::bigint THEN
        RAISE EXCEPTION USING ERRCODE = '{TOO_MANY}', MESSAGE = 'too many rows';
    END IF;
    RETURN NULL;
END $autoclave$;
REVOKE ALL ON FUNCTION pg_temp.autoclave_hear() FROM PUBLIC
"""
_LISTENERS = """
SELECT t.oid, t.ctid::text FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE p.pronamespace = pg_catalog.pg_my_temp_schema() ORDER BY 1
"""
"""Our triggers, and where they are written down: elsewhere when somebody has altered one, if only for a while."""
_GONE, _COME = "OLD TABLE AS autoclave_gone", "NEW TABLE AS autoclave_come"
_EVENTS = {"insert": _COME, "update": f"{_GONE} {_COME}", "delete": _GONE}


class Recorder:
    """Of one transaction on some tables. `most`: rows that one statement may change."""

    def __init__(self, connection: Any, catalogue: Catalogue, tables: Iterable[TableFacts], most: int) -> None:
        self._connection, self._catalogue = connection, catalogue
        self._tables = [table for table in tables if not table.is_view]
        self.heard = {table.place for table in self._tables}
        connection.execute(_MADE)
        for number, table in enumerate(self._tables):
            refusal = table.refusal or ("" if table.written else "has no column that can be written")
            if refusal:
                raise Rejected(f"table {table.place}: {refusal}")
            self._listen(table, number, most)
        self._listeners = connection.execute(_LISTENERS).fetchall()

    def _listen(self, table: TableFacts, number: int, most: int) -> None:
        from psycopg import sql

        words = [
            f"INSERT INTO {_IMAGES} SELECT {number}, {sign}, {table.key_of(_ROW)}, {_ROW}::text FROM {source} {_ROW}"
            for sign, source in ((-1, "autoclave_gone"), (1, "autoclave_come"))
        ]
        given = sql.SQL(", ").join(map(sql.Literal, [f"{most}", *words])).as_string(self._connection)
        for event, references in _EVENTS.items():
            self._connection.execute(
                f"CREATE TRIGGER {quoted(f'{_FIRST} {event}')} AFTER {event} ON {table.quoted} REFERENCING "
                f"{references} FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.autoclave_hear({given})".encode()
            )

    def require_untouched(self) -> None:
        """Look that nobody has switched off what listens, as the owner of a table could.

        Raises:
            InputError: somebody has.
        """
        if self._connection.execute(_LISTENERS).fetchall() != self._listeners:
            raise InputError("the statements changed the triggers that tell what they change")

    def require_keepable(self, most_bytes: int) -> None:
        """Look that what was heard is not too much to be kept, and that the server reads it as it wrote it.

        Raises:
            InputError: it is, or it does not.
        """
        import psycopg

        query = f"SELECT COALESCE(sum(octet_length(image)), 0)::bigint FROM {_IMAGES}"
        (num_bytes,) = self._connection.execute(query).fetchone()
        if num_bytes > most_bytes:
            raise InputError(f"changes rows of {num_bytes} bytes, more than {most_bytes} (max_bytes)")
        for number, table in enumerate(self._tables):
            if table.is_plain:
                continue
            query = f"SELECT count(*) FROM {_IMAGES} WHERE place = {number} AND image::{table.quoted}::text <> image"
            try:
                (wrong,) = self._connection.execute(query).fetchone()
            except (psycopg.DataError, psycopg.ProgrammingError):
                wrong = 1
            if wrong:
                raise InputError(f"table {table.place}: has values that do not come back from their text")

    def table_effects(self) -> Iterator[TableEffect]:
        """What became of each table."""
        counts = [Counter[Image]() for _ in self._tables]
        for place, sign, *image in self._connection.execute(f"SELECT place, sign, key, image FROM {_IMAGES}"):
            counts[place][tuple(image)] += sign  # equal rows cancel out
        for table, found in zip(self._tables, counts, strict=True):
            went, came = sorted((-found).elements()), sorted((+found).elements())
            if went or came:
                yield TableEffect(table.place, table.layout, tuple(went), tuple(came))

    def parents(self) -> Iterator[str]:
        """Rows that those that came refer to, as far as the reference is to a key and they are few; else tables."""
        for number, table in enumerate(self._tables):
            for each in table.foreign_keys:
                parent = self._catalogue.tables.get(each.parent)
                if parent is None:
                    continue
                values = f"SELECT (image::{table.quoted}).{quoted(each.columns[0])}::text AS value FROM {_IMAGES}"
                rows = f"({values} WHERE place = {number} AND sign = 1 OFFSET 0) i"
                query = f"SELECT value FROM {rows} WHERE value IS NOT NULL LIMIT {NUM_KEYS + 1}"
                found = self._connection.execute(query).fetchall()
                if found and (parent.key != each.target or len(each.target) != 1 or len(found) > NUM_KEYS):
                    yield each.parent
                else:
                    yield from (f"{each.parent}/{as_name(value)}" for (value,) in found)

    def close(self) -> None:
        """Take the triggers away again, before the transaction ends well."""
        for table in self._tables:
            for event in _EVENTS:
                self._connection.execute(f"DROP TRIGGER {quoted(f'{_FIRST} {event}')} ON {table.quoted}")
        self._connection.execute(f"DROP FUNCTION pg_temp.autoclave_hear(); DROP TABLE {_IMAGES}")
