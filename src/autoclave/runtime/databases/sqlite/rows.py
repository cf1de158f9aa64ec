"""Rows of an SQLite file looked up, taken away and brought by their images; definitions likewise.

Meant for a connection of which triggers and foreign keys are switched off: what an image says is then all that happens.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoclave.runtime.databases.effects import Definition, Effect, Image, TableEffect, is_same
from autoclave.runtime.databases.engine import Contested
from autoclave.runtime.databases.places import name_of
from autoclave.runtime.databases.sqlite.catalogue import (
    PLAIN,
    TableMaker,
    decoded,
    names_in,
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
        gone = {key for key, _ in effect.removed}
        new = [image for image in effect.added if image[0] not in gone and not image[0].startswith("rowid ")]
        for image, now in self._found(table, effect.removed):
            if not is_same(now, image):
                yield (effect.table, image[0]), now
        for image, now in self._found(table, new):
            if now is not None and now[0] not in gone:  # else its key is the same, but for how it is spelt
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

    def _found(self, table: TableMaker, images: Sequence[Image]) -> Iterator[tuple[Image, Image | None]]:
        """Images, each with the row that is there under its key."""
        is_by_rowid = table.has_rowid and (table.alias is not None or not table.key)
        by_rowid = [each for each in images if is_by_rowid or each[0].startswith("rowid ")]
        there = self._rows_at(table, [data[0] for _, data in by_rowid])
        yield from ((image, there.get(image[1][0])) for image in by_rowid)
        if not is_by_rowid:
            yield from self._found_by_key(table, [each for each in images if not each[0].startswith("rowid ")])

    def _rows_at(self, table: TableMaker, rowids: Sequence[int]) -> dict[int, Image]:
        """Rows by their rowids, looked up at once."""
        import apsw

        if not rowids:
            return {}
        statement = f"SELECT {_columns(table)} FROM main.{quoted(table.name)} WHERE {table.rowid} IN carray(?)"
        rows = self._connection.execute(statement, (apsw.carray(array("q", rowids)),))
        return {rowid: table.image(rowid, values) for rowid, *values in rows}

    def _found_by_key(self, table: TableMaker, images: Sequence[Image]) -> Iterator[tuple[Image, Image | None]]:
        where = " AND ".join(f"{quoted(table.stored[number][0])} IS ?" for number in table.key)
        statement = f"SELECT ?, {_columns(table)} FROM main.{quoted(table.name)} WHERE {where}"
        keys = ([decoded(data[1][number]) for number in table.key] for _, data in images)
        rows = self._connection.executemany(statement, ((number, *key) for number, key in enumerate(keys)))
        there = {number: table.image(rowid, values) for number, rowid, *values in rows}
        yield from ((image, there.get(number)) for number, image in enumerate(images))

    def write(self, effect: Effect) -> None:
        """Make an effect true. The caller has the transaction, and has looked that nothing is contested."""
        for each in effect.created:
            self._connection.execute(each.statement)
            if each.kind == "table":  # what was made out of a query is full
                self._connection.execute(f"DELETE FROM main.{quoted(name_of(each.name))}")
        self._tables = tables_of(self._connection)
        for each in effect.tables:
            self._take(self._tables[name_of(each.table)], each.removed)
        for each in effect.tables:
            self._bring(self._tables[name_of(each.table)], each.added)
        for each in effect.dropped:
            self._connection.execute(f"DROP {each.kind} main.{quoted(name_of(each.name))}")
        self._set_counters(effect.counters)

    def _take(self, table: TableMaker, images: tuple[Image, ...]) -> None:
        import apsw

        before, delete = self._connection.total_changes(), f"DELETE FROM main.{quoted(table.name)} WHERE "
        if table.has_rowid and images:
            rowids = apsw.carray(array("q", [data[0] for _, data in images]))
            self._connection.execute(f"{delete}{table.rowid} IN carray(?)", (rowids,))
        elif images:
            where = " AND ".join(f"{quoted(table.stored[number][0])} IS ?" for number in table.key)
            rows = (tuple(decoded(data[1][number]) for number in table.key) for _, data in images)
            self._connection.executemany(delete + where, rows)
        if self._connection.total_changes() - before != len(images):
            raise Contested(f"somebody else has changed {table.place}")

    def _bring(self, table: TableMaker, images: tuple[Image, ...]) -> None:
        names = [quoted(table.stored[number][0]) for number in table.written]
        has_own, is_whole = table.has_rowid and table.alias is None, len(table.written) == len(table.stored)
        names += [table.rowid] if has_own else []
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT INTO main.{quoted(table.name)} ({', '.join(names)}) VALUES ({marks})"

        def rows() -> Iterator[Sequence[Any]]:
            for _, (rowid, values) in images:
                if is_whole and not has_own and PLAIN.issuperset(map(type, values)):
                    yield values
                    continue
                row = [decoded(values[number]) for number in table.written]
                if has_own:
                    row.append(None if self._has_rowid(table, rowid) else rowid)
                yield row

        self._connection.executemany(statement, rows())

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


def _columns(table: TableMaker) -> str:
    """What is read of a row: its rowid, if it has one, and its values."""
    return ", ".join([table.rowid if table.has_rowid else "0", *(quoted(each[0]) for each in table.stored)])
