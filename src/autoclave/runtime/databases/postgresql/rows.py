"""Rows of a PostgreSQL database compared with their images, and written back, in the caller's transaction.

Images are loaded into a temporary table and read by the type of the row that they are of, so all types come back as
they were, and all is done by few statements, however many rows there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from autoclave.runtime.databases.effects import Definition, Effect, Image, TableEffect
from autoclave.runtime.databases.images import SEPARATOR, lines_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, quoted
from autoclave.runtime.databases.postgresql.definitions import definition_of
from autoclave.runtime.databases.postgresql.recorder import Sums, rows_as_text, summed

_LINES = "pg_temp.autoclave_lines"
_WRITING = "pg_temp.autoclave_writing"
Places = dict[tuple[str, str], Image | None]
ORDERS = ("delete update insert", "insert update delete", "update delete insert", "delete replace insert")
"""Which changes come first. References and unique values ask for one or the other; what each did is looked at."""
_VERBS = {"delete": "delete", "update": "modify", "insert": "create", "replace": "modify"}
_ALL = ("create", "modify", "delete")


class Rows:
    """An effect, loaded into the transaction."""

    def __init__(self, connection: Any, catalogue: Catalogue, effect: Effect) -> None:
        self._connection, self._catalogue, self._effect = connection, catalogue, effect
        connection.execute(
            f"DROP TABLE IF EXISTS {_WRITING}; DROP TABLE IF EXISTS {_LINES}; "
            f"CREATE TEMPORARY TABLE {_LINES.removeprefix('pg_temp.')} (place int, sign int, line text) ON COMMIT DROP"
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {_LINES} FROM STDIN") as copy:
            for number, table in enumerate(effect.tables):
                for sign, images in ((-1, table.removed), (1, table.added)):
                    if images:
                        place = f"{number}\t{sign}\t"
                        lines = lines_of(images).replace("\\", "\\\\").replace(SEPARATOR, f"\n{place}")
                        copy.write(f"{place}{lines}\n")
        connection.execute(
            f"CREATE TEMPORARY TABLE {_WRITING.removeprefix('pg_temp.')} ON COMMIT DROP AS SELECT place, sign, "
            f"line::json ->> 0 AS key, line::json ->> 1 AS image FROM {_LINES}; "
            f"ANALYZE {_WRITING} (place, sign, key)"
        )

    # --- Comparing --------------------------------------------------------------------------------------------------

    def contested(self) -> Places:
        """See `Engine.contested`."""
        found: Places = {}
        made = {each.name for each in self._effect.created if each.kind == "table"}
        for number, effect in enumerate(self._effect.tables):
            table = self._catalogue.tables.get(effect.table)
            if effect.table in made:
                continue
            if table is None or table.layout != effect.layout:
                found[effect.table, ""] = None
            elif table.key:
                found.update(self._contested_by_key(number, table))
            elif self._is_short(number, table):
                found[effect.table, ""] = None
        for each in self._effect.created:
            if self.definition(each.kind, each.name):
                found[each.name, ""] = None
        for each in self._effect.dropped:
            if not self._is_as_made(each):
                found[each.name, ""] = None
        return found

    def _contested_by_key(self, number: int, table: TableFacts) -> Iterator[tuple[tuple[str, str], Image | None]]:
        same, own = (
            " AND ".join(f"t.{quoted(name)} = ({row}.r).{quoted(name)}" for name in table.key) for row in ("w", "o")
        )
        rows = self._connection.execute(
            f"WITH w AS MATERIALIZED (SELECT sign, key, image, image::{table.quoted} AS r FROM {_WRITING} "
            f"WHERE place = {number}) SELECT w.key, t.*::text FROM w LEFT JOIN {table.quoted} t ON {same} "
            "WHERE (w.sign = -1 AND t.*::text IS DISTINCT FROM w.image) OR (w.sign = 1 AND t.* IS DISTINCT FROM NULL "
            f"AND NOT EXISTS (SELECT FROM w o WHERE o.sign = -1 AND {own}))"  # equal, maybe written otherwise
        )
        for key, now in rows.fetchall():
            yield (table.place, key), None if now is None else (key, now)

    def _is_short(self, number: int, table: TableFacts) -> bool:
        """Whether a table without a key has fewer of some rows than are to be taken away."""
        query = (
            f"SELECT w.image FROM (SELECT image, count(*) AS wanted FROM {_WRITING} WHERE place = {number} AND "
            f"sign = -1 GROUP BY image) w LEFT JOIN (SELECT t.*::text AS image, count(*) AS there FROM {table.quoted} "
            "t GROUP BY 1) t ON t.image = w.image WHERE COALESCE(t.there, 0) < w.wanted LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def definition(self, kind: str, place: str) -> str:
        """What a table, an index or a view is made of now; empty if there is none."""
        return definition_of(self._connection, self._catalogue, kind, place)

    def _is_as_made(self, definition: Definition) -> bool:
        """Whether something to be dropped is as it was made, with nothing put in since."""
        if self.definition(definition.kind, definition.name) != definition.layout:
            return False
        if definition.kind != "table":
            return True
        own = [image for each in self._effect.tables if each.table == definition.name for image in each.removed]
        return sorted(own) == sorted(rows_as_text(self._connection, self._catalogue.tables[definition.name]))

    def sums(self, seeds: tuple[int, int]) -> Sums:
        """What `Recorder.sums` will give when the effect is written."""
        tables = self._effect.tables
        found = summed(self._connection, _WRITING, seeds)
        return {tables[place].table: (tables[place].layout, one, other) for place, (one, other) in found.items()}

    # --- Writing ----------------------------------------------------------------------------------------------------

    def write(self, order: str) -> None:
        """Bring rows and take rows, in one of `ORDERS`. What follows by triggers and keys is not looked at."""
        places = {effect.table: number for number, effect in enumerate(self._effect.tables)}
        parents_first = self._catalogue.parents_first(places)
        verbs = {verb for effect in self._effect.tables for verb in (effect.counts if effect.has_keys else _ALL)}
        for change in order.split():
            if _VERBS[change] not in verbs:
                continue
            for place in parents_first if change in ("insert", "update") else parents_first[::-1]:
                for statement in self._statements(change, places[place], self._catalogue.tables[place]):
                    self._connection.execute(statement)

    def _statements(self, change: str, number: int, table: TableFacts) -> Iterator[str]:
        columns = ", ".join(quoted(name) for name in table.written)
        values = ", ".join(f"(w.r).{quoted(name)}" for name in table.written)

        def images(sign: int, only: str) -> str:
            other = f"SELECT FROM {_WRITING} o WHERE o.place = w.place AND o.sign = {-sign} AND o.key = w.key"
            paired = {"alone": f"AND NOT EXISTS ({other})", "paired": f"AND EXISTS ({other})", "all": ""}
            where = paired[only if table.key else "all"]
            return (
                f"(SELECT w.key, w.image, w.image::{table.quoted} AS r FROM {_WRITING} w WHERE w.place = {number} "
                f"AND w.sign = {sign} {where} OFFSET 0)"
            )

        same = " AND ".join(f"t.{quoted(name)} = (w.r).{quoted(name)}" for name in table.key)

        def delete(source: str) -> str:
            return f"DELETE FROM {table.quoted} t USING {source} w WHERE {same}"

        def insert(source: str) -> str:
            return f"INSERT INTO {table.quoted} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source} w"

        match change:
            case "delete" if table.key:
                yield delete(images(-1, "alone"))
            case "delete":
                yield self._delete_without_key(number, table)
            case "insert":
                yield insert(images(1, "alone"))
            case "update" if table.key and table.updated:
                setting = ", ".join(f"{quoted(name)} = (w.r).{quoted(name)}" for name in table.updated)
                yield f"UPDATE {table.quoted} t SET {setting} FROM {images(1, 'paired')} w WHERE {same}"
            case "replace" if table.key:
                yield delete(images(-1, "paired"))
                yield insert(images(1, "paired"))

    def _delete_without_key(self, number: int, table: TableFacts) -> str:
        """As many of equal rows as there are images, whichever."""
        return (
            f"DELETE FROM {table.quoted} d USING (SELECT t.tableoid AS o, t.ctid AS c, t.*::text AS image, "
            f"row_number() OVER (PARTITION BY t.*::text) AS n FROM {table.quoted} t) t, "
            f"(SELECT image, count(*) AS wanted FROM {_WRITING} WHERE place = {number} AND sign = -1 GROUP BY image) w "
            "WHERE w.image = t.image AND t.n <= w.wanted AND d.tableoid = t.o AND d.ctid = t.c"
        )


def difference(found: Iterable[TableEffect], wanted: Iterable[TableEffect]) -> tuple[TableEffect, ...]:
    """What is still to be done to tables to which `found` was done, for `wanted` to be what was done to them."""
    tables: dict[str, tuple[str, Counter[Image]]] = {}
    for effects, sign in ((wanted, 1), (found, -1)):
        for each in effects:
            _, counts = tables.setdefault(each.table, (each.layout, Counter()))
            for image in each.added:
                counts[image] += sign
            for image in each.removed:
                counts[image] -= sign
    return tuple(
        TableEffect(
            table,
            layout,
            tuple(image for image, count in counts.items() for _ in range(-count)),
            tuple(image for image, count in counts.items() for _ in range(count)),
        )
        for table, (layout, counts) in tables.items()
        if any(counts.values())
    )
