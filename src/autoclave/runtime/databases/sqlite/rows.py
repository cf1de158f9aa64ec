"""Rows of an SQLite file looked up, taken away and brought by their images; definitions likewise.

Meant for a connection of which triggers and foreign keys are switched off: what an image says is then all that happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autoclave.runtime.databases.effects import Definition, Effect, Image, TableEffect, is_same
from autoclave.runtime.databases.engine import Contested
from autoclave.runtime.databases.sqlite.catalogue import (
    TableMaker,
    decoded,
    objects_of,
    quoted,
    tables_of,
)

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
            table = self._tables.get(each.table.partition("/")[2])
            if table is None or table.layout != each.layout:
                found[each.table, ""] = None
            else:
                found.update(self._contested_rows(table, each))
        for each in effect.created:
            if (each.kind, _own(each.name)) in self._objects:
                found[each.name, ""] = None
        for each in effect.dropped:
            if not self._is_as_made(each, effect):
                found[each.name, ""] = None
        return found

    def _contested_rows(self, table: TableMaker, effect: TableEffect) -> Iterator[tuple[tuple[str, str], Image | None]]:
        gone = set()
        for image in effect.removed:
            gone.add(image[0])
            if not is_same(now := self._found(table, image), image):
                yield (effect.table, image[0]), now
        for image in effect.added:
            if image[0] in gone or image[0].startswith("rowid "):
                continue
            if (now := self._found(table, image)) is not None:
                yield (effect.table, image[0]), now

    def _is_as_made(self, definition: Definition, effect: Effect) -> bool:
        """Whether something to be dropped is as it was made, with nothing put in since, and nobody needs it."""
        name = _own(definition.name)
        if self._objects.get((definition.kind, name)) != definition.statement:
            return False
        own = {(each.kind, _own(each.name)) for each in effect.dropped}
        word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
        if any(word.search(sql) for place, sql in self._objects.items() if place not in own):
            return False
        if definition.kind != "table":
            return True
        ((count,),) = self._connection.execute(f"SELECT count(*) FROM main.{quoted(name)}")
        return count == sum(len(each.removed) for each in effect.tables if each.table == definition.name)

    def _found(self, table: TableMaker, image: Image) -> Image | None:
        """The row that is there under the key of an image."""
        _, (rowid, values) = image
        columns = ", ".join(quoted(column[0]) for column in table.stored)
        first = table.rowid if table.has_rowid else "0"
        key = [(quoted(table.stored[number][0]), decoded(values[number])) for number in table.key]
        if table.has_rowid and (not key or image[0].startswith("rowid ")):
            key = [(table.rowid, rowid)]
        where = " AND ".join(f"{column} IS ?" for column, _ in key)
        statement = f"SELECT {first}, {columns} FROM main.{quoted(table.name)} WHERE {where}"
        for found, *row in self._connection.execute(statement, [value for _, value in key]):
            return table.image(found, row)
        return None

    def write(self, effect: Effect) -> None:
        """Make an effect true. The caller has the transaction, and has looked that nothing is contested."""
        for each in effect.created:
            self._connection.execute(each.statement)
            if each.kind == "table":  # what was made out of a query is full
                self._connection.execute(f"DELETE FROM main.{quoted(_own(each.name))}")
        self._tables = tables_of(self._connection)
        for each in effect.tables:
            self._take(self._tables[_own(each.table)], each.removed)
        for each in effect.tables:
            self._bring(self._tables[_own(each.table)], each.added)
        for each in effect.dropped:
            self._connection.execute(f"DROP {each.kind} main.{quoted(_own(each.name))}")
        self._set_counters(effect.counters)

    def _take(self, table: TableMaker, images: tuple[Image, ...]) -> None:
        if table.has_rowid:
            where, rows = f"{table.rowid} = ?", [(data[0],) for _, data in images]
        else:
            where = " AND ".join(f"{quoted(table.stored[number][0])} IS ?" for number in table.key)
            rows = [tuple(decoded(data[1][number]) for number in table.key) for _, data in images]
        before = self._connection.total_changes()
        self._connection.executemany(f"DELETE FROM main.{quoted(table.name)} WHERE {where}", rows)
        if self._connection.total_changes() - before != len(images):
            raise Contested.over([table.place])

    def _bring(self, table: TableMaker, images: tuple[Image, ...]) -> None:
        names = [quoted(table.stored[number][0]) for number in table.written]
        alias = self._rowid_column(table)
        names += [table.rowid] if alias is None and table.has_rowid else []
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT INTO main.{quoted(table.name)} ({', '.join(names)}) VALUES ({marks})"
        for _, (rowid, values) in images:
            row = [decoded(values[number]) for number in table.written]
            if alias is None and table.has_rowid:
                row.append(None if self._has_rowid(table, rowid) else rowid)
            self._connection.execute(statement, row)

    def _rowid_column(self, table: TableMaker) -> int | None:
        """The place of the column that is the rowid itself."""
        if table.has_rowid and len(table.key) == 1 and table.stored[table.key[0]][1].upper() == "INTEGER":
            return table.key[0]
        return None

    def _has_rowid(self, table: TableMaker, rowid: int) -> bool:
        statement = f"SELECT 1 FROM main.{quoted(table.name)} WHERE {table.rowid} = ?"
        return bool(list(self._connection.execute(statement, (rowid,))))

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


def _own(place: str) -> str:
    return place.partition("/")[2]
