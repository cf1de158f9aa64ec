"""Rows of a PostgreSQL database compared with their images, and written back, in the caller's transaction.

Images are loaded into a temporary table and read by the type of the row that they are of, so all types come back as
they were, and all is done by few statements, however many rows there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from autoclave.runtime.databases.effects import Effect, Image, TableEffect
from autoclave.runtime.databases.engine import FoundRows
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, quoted

_WRITING = "pg_temp.autoclave_writing"
ORDERS = ("delete update insert", "insert update delete", "update delete insert", "delete replace insert")
"""Which changes come first. References and unique values ask for one or the other; what each did is looked at."""
_VERBS = {"delete": "delete", "update": "modify", "insert": "create", "replace": "modify"}
_ALL = ("create", "modify", "delete")


class Rows:
    """An effect, loaded into the transaction."""

    def __init__(self, connection: Any, catalogue: Catalogue, effect: Effect) -> None:
        self._connection, self._catalogue, self._effect = connection, catalogue, effect
        connection.execute(
            f"DROP TABLE IF EXISTS {_WRITING}; CREATE TEMPORARY TABLE {_WRITING.removeprefix('pg_temp.')} "
            "(place int, sign int, key text, image text) ON COMMIT DROP"
        )
        with connection.cursor() as cursor, cursor.copy(f"COPY {_WRITING} FROM STDIN") as copy:
            for number, table in enumerate(effect.tables):
                for sign, images in ((-1, table.removed), (1, table.added)):
                    for image in images:
                        copy.write_row((number, sign, *image))
        connection.execute(f"ANALYZE {_WRITING} (place, sign, key)")

    # --- Comparing --------------------------------------------------------------------------------------------------

    def conflicting(self) -> FoundRows:
        """See `Engine.conflicting`."""
        found: FoundRows = {}
        for number, effect in enumerate(self._effect.tables):
            table = self._catalogue.tables.get(effect.table)
            if table is None or table.layout != effect.layout:
                found[effect.table, ""] = None
            elif table.key:
                found.update(self._contested_by_key(number, table))
            elif self._is_short(number, table):
                found[effect.table, ""] = None
        return found

    def _contested_by_key(self, number: int, table: TableFacts) -> Iterator[tuple[tuple[str, str], Image | None]]:
        same, own = table.is_same_key("t", "(w.r)"), table.is_same_key("t", "(o.r)")
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

        same = table.is_same_key("t", "(w.r)")

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
    counts: dict[tuple[str, str], Counter[Image]] = {}
    for effects, came, went in ((wanted, Counter.update, Counter.subtract), (found, Counter.subtract, Counter.update)):
        for each in effects:
            count = counts.setdefault((each.table, each.layout), Counter())
            came(count, each.added)
            went(count, each.removed)
    return tuple(
        TableEffect(table, layout, tuple((-count).elements()), tuple((+count).elements()))
        for (table, layout), count in counts.items()
        if any(count.values())
    )
