"""Rows of an SQLite file looked up, taken away and brought by their images; definitions likewise.

Meant for a connection of which triggers and foreign keys are switched off: what an image says is then all that happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoclave.runtime.databases.effects import Definition, Effect, TableEffect
from autoclave.runtime.databases.engine import Contested
from autoclave.runtime.databases.images import Image, is_same, keys_in
from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, names_in, objects_of, quoted, tables_of
from autoclave.runtime.databases.sqlite.texts import ROWID, column_at, equipped, image_of, matches, read_either_way

if TYPE_CHECKING:
    import apsw

Places = dict[tuple[str, str], Image | None]
_MADE_KINDS = ("index", "view", "table")


class Rows:
    """Of one file, as its tables are now."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._tables = tables_of(connection)
        self._objects = objects_of(connection)

    def contested(self, effect: Effect) -> Places:
        """See `Engine.contested`."""
        found: Places = {}
        made = {each.name for each in effect.created if each.kind == "table"}
        for each in effect.tables:
            if each.table in made:
                continue
            table = self._tables.get(name_of(each.table))
            if table is None or table.layout != each.layout:
                found[each.table, ""] = None
            else:
                found.update(self._contested_rows(table, each))
        for each in effect.created:
            if (each.kind, name_of(each.name)) in self._objects:
                found[each.name, ""] = None
        for each in effect.dropped:
            if not self._is_as_made(each, effect):
                found[each.name, ""] = None
        return found

    def _contested_rows(self, table: TableMaker, effect: TableEffect) -> Iterator[tuple[tuple[str, str], Image | None]]:
        went, came = effect.texts
        for image, now in self._found(table, went, "({now}) IS NOT json(j.value)"):
            if not is_same(now, image):  # what is the same may be written in several ways
                yield (effect.table, image[0]), now
        if not effect.counts.get("create"):
            return
        gone = set(keys_in(effect.removed))
        for image, now in self._found(table, came, "({now}) IS NOT NULL"):
            is_new = image[0] not in gone and not image[0].startswith("rowid ")
            if is_new and now is not None and now[0] not in gone:  # else its key is the same, but for how it is spelt
                yield (effect.table, image[0]), now

    def _is_as_made(self, definition: Definition, effect: Effect) -> bool:
        """Whether something to be dropped is as it was made, with nothing put in since, and nobody needs it."""
        name = name_of(definition.name)
        if self._objects.get((definition.kind, name)) != definition.statement:
            return False
        own = {(each.kind, name_of(each.name)) for each in effect.dropped}
        if any(name.lower() in names_in(sql) for place, sql in self._objects.items() if place not in own):
            return False
        if definition.kind != "table":
            return True
        ((count,),) = self._connection.execute(f"SELECT count(*) FROM main.{quoted(name)}")
        return count == sum(len(each.removed) for each in effect.tables if each.table == definition.name)

    def _found(self, table: TableMaker, images: str, condition: str) -> Iterator[tuple[Image, Image | None]]:
        """Images out of a text of them, each with the row that is there under its key, where a condition holds."""

        def found(is_odd: bool) -> list[tuple[str, str | None]]:
            now = image_of(table, is_odd=is_odd)
            return [
                row
                for match, which in matches(table)
                for row in self._connection.execute(
                    f"SELECT json(j.value), {now} FROM jsonb_each(?) j LEFT JOIN main.{quoted(table.name)} t "
                    f"ON {match} WHERE {which} AND {condition.format(now=now)}",
                    (images,),
                )
            ]

        with equipped(self._connection):
            rows = read_either_way(found)
        for image, now in rows:
            yield _parsed(image), _parsed(now) if now is not None else None

    def write(self, effect: Effect) -> None:
        """Make an effect true. The caller has the transaction, and has looked that nothing is contested."""
        for each in effect.created:
            self._connection.execute(each.statement)
            if each.kind == "table":  # what was made out of a query is full
                self._connection.execute(f"DELETE FROM main.{quoted(name_of(each.name))}")
        self._tables = tables_of(self._connection)
        with equipped(self._connection):
            for each in effect.tables:
                if each.removed:
                    self._take(self._tables[name_of(each.table)], each)
            for each in effect.tables:
                if each.added:
                    self._bring(self._tables[name_of(each.table)], each.texts[1])
        for each in effect.dropped:
            self._connection.execute(f"DROP {each.kind} main.{quoted(name_of(each.name))}")
        self._set_counters(effect.counters)

    def _take(self, table: TableMaker, effect: TableEffect) -> None:
        if table.has_rowid:
            which = f"{table.rowid} IN (SELECT {ROWID} FROM jsonb_each(?) j)"
        else:
            names = ", ".join(quoted(table.stored[number][0]) for number in table.key)
            values = ", ".join(column_at(number) for number in table.key)
            which = f"({names}) IN (SELECT {values} FROM jsonb_each(?) j)"
        before = self._connection.total_changes()
        self._connection.execute(f"DELETE FROM main.{quoted(table.name)} WHERE {which}", (effect.texts[0],))
        if self._connection.total_changes() - before != len(effect.removed):
            raise Contested(f"somebody else has changed {table.place}")

    def _bring(self, table: TableMaker, images: str) -> None:
        """Insert rows. Where a rowid is nothing but a place, and somebody has it, a row gets another one."""
        names = [quoted(table.stored[number][0]) for number in table.written]
        values = [column_at(number) for number in table.written]
        if not table.has_rowid or table.alias is not None:
            self._insert(table, names, values, images)
            return
        query = f"SELECT {ROWID} FROM jsonb_each(?) j JOIN main.{quoted(table.name)} t ON t.{table.rowid} = {ROWID}"
        taken = json.dumps([rowid for (rowid,) in self._connection.execute(query, (images,))])
        names.append(table.rowid)
        is_taken = f"{ROWID} IN (SELECT value FROM json_each(?))"
        self._insert(table, names, [*values, ROWID], images, f"NOT {is_taken}", taken)
        self._insert(table, names, [*values, "NULL"], images, is_taken, taken)

    def _insert(
        self, table: TableMaker, names: Sequence[str], values: Sequence[str], images: str, which: str = "", *given: str
    ) -> None:
        self._connection.execute(
            f"INSERT INTO main.{quoted(table.name)} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM jsonb_each(?) j WHERE {which or 'true'}",
            (images, *given),
        )

    def _set_counters(self, counters: Mapping[str, tuple[Any, Any]]) -> None:
        """Set AUTOINCREMENT where nobody has drawn another number since."""
        for table, (before, after) in counters.items():
            if not list(self._connection.execute("SELECT 1 FROM main.sqlite_schema WHERE name = ?", (table,))):
                continue
            now = list(self._connection.execute("SELECT seq FROM main.sqlite_sequence WHERE name = ?", (table,)))
            if now == ([(before,)] if before is not None else []):
                self._connection.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (table,))
                if after is not None:
                    self._connection.execute("INSERT INTO main.sqlite_sequence VALUES (?, ?)", (table, after))


def _parsed(text: str) -> Image:
    key, data = json.loads(text)
    return key, data
