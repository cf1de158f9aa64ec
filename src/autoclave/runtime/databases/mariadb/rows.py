"""Rows of a MariaDB database looked up, compared with their images, and written back, in the caller's transaction.

Rows are written while the server looks at no foreign keys (`SET foreign_key_checks = 0`), so that nothing is carried on
to other rows; afterwards we look at the references ourselves. What was written is read again, and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image, TableEffect
from autoclave.runtime.databases.engine import FoundRows, Rejected
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts
from autoclave.runtime.databases.mariadb.connection import do, rows
from autoclave.runtime.databases.mariadb.values import ColumnFacts, quoted
from autoclave.runtime.databases.tables import ForeignKey, names_of

WHOLE_ROWS = 100_000
"""Tables that are compared as a whole may have so many rows."""
_AT_ONCE = 500


class Rows:
    """Of one database. `locks`: rows that are looked at, and places where there are none, stay as they are."""

    def __init__(self, connection: Any, catalogue: Catalogue, *, locks: bool = True) -> None:
        self._connection, self._catalogue = connection, catalogue
        self._locking = " FOR UPDATE" if locks else ""

    # --- Looking ----------------------------------------------------------------------------------------------------

    def where(self, table: TableFacts, condition: str, row: str = "", limit: int = 0) -> list[Image]:
        """Rows that meet a condition, in which the table has the name `row`."""
        alias = f" AS {quoted(row)}" if row and row != table.name else ""
        most = f" LIMIT {limit}" if limit else ""
        where = f" WHERE {condition}" if condition else ""
        reading = table.reading(quoted(row or table.name))
        query = f"SELECT {reading} FROM {table.quoted}{alias}{where}{most}{self._locking}"
        return [table.image(values) for values in rows(self._connection, query)]

    def whole(self, table: TableFacts) -> list[Image]:
        """All rows.

        Raises:
            InputError: they are too many to be compared.
        """
        found = self.where(table, "", limit=WHOLE_ROWS + 1)
        if len(found) > WHOLE_ROWS:
            raise InputError(
                f"table {table.place}: has more than {WHOLE_ROWS} rows to compare, which a table without a primary "
                "key, REPLACE, ON DUPLICATE KEY, LIMIT and changed keys need. Fix: UPDATE or DELETE one table "
                "with a primary key by WHERE alone"
            )
        return found

    def by_key(self, table: TableFacts, images: Iterable[Image]) -> dict[str, Image]:
        """The rows that are there under the keys of images, by these keys."""
        wanted = {image[0]: table.literals(image, table.key) for image in images}
        found = {image[0]: image for image in self.matching(table, table.key, wanted.values())}
        if found.keys() - wanted.keys():  # keys that are other texts, and the same to the server ('a' and 'A')
            for name in wanted.keys() - found.keys():
                for image in self.matching(table, table.key, [wanted[name]]):
                    found[name] = image
        return {name: image for name, image in found.items() if name in wanted}

    def matching(self, table: TableFacts, columns: Sequence[str], values: Iterable[Sequence[str]]) -> list[Image]:
        """Rows that have some values, which are SQL, in some columns."""
        wanted = [each for each in dict.fromkeys(map(tuple, values)) if "NULL" not in each]
        return [image for some in _parts(wanted) for image in self.where(table, _among(columns, some))]

    def referring(self, key: ForeignKey, parents: Iterable[Image]) -> list[Image]:
        """Rows of a child that refer to rows of its parent."""
        parent, child = self._catalogue.tables[key.parent], self._catalogue.tables[key.child]
        return self.matching(child, key.columns, (parent.literals(image, key.target) for image in parents))

    # --- Comparing --------------------------------------------------------------------------------------------------

    def conflicting(self, effect: Effect) -> FoundRows:
        """See `Engine.conflicting`."""
        found: FoundRows = {}
        for each in effect.tables:
            table = self._catalogue.tables.get(each.table)
            if table is None or table.layout != each.layout:
                found[each.table, ""] = None
            elif table.key:
                found.update(self._contested_by_key(table, each))
            elif counted(each.removed) - counted(self.whole(table)):
                found[each.table, ""] = None
        return found

    def _contested_by_key(
        self, table: TableFacts, effect: TableEffect
    ) -> Iterator[tuple[tuple[str, str], Image | None]]:
        gone = {image[0] for image in effect.removed}
        there = self.by_key(table, (*effect.removed, *effect.added))
        for image in effect.removed:
            if (now := there.get(image[0])) != image:
                yield (table.place, image[0]), now
        for image in effect.added:
            now = there.get(image[0])
            if image[0] not in gone and now is not None and now[0] not in gone:
                yield (table.place, image[0]), now

    # --- Writing ----------------------------------------------------------------------------------------------------

    def write(self, effect: Effect) -> None:
        """Make an effect true, when no row conflicts.

        Raises:
            Rejected: it would set off triggers, or references would lead nowhere.
        """
        pairs = [(self._catalogue.tables[each.table], each) for each in effect.tables]
        for table, _ in pairs:
            if table.triggers:
                raise Rejected(f"table {table.place}: has triggers ({', '.join(table.triggers)}), which would be fired")
        before = [self._there(*pair) for pair in pairs]
        for table, each in pairs:
            self._take(table, each.removed)
        for table, each in pairs:
            self._bring(table, each.added)
        for (table, each), was in zip(pairs, before, strict=True):
            if self._there(table, each) != was - counted(each.removed) + counted(each.added):
                raise Rejected(f"table {table.place}: rows did not become what they were to become")
            self._require_references(table, each)

    def _there(self, table: TableFacts, effect: TableEffect) -> Counter[tuple[Any, ...]]:
        """Rows under the keys of an effect; where there are no keys, all."""
        if not table.key:
            return counted(self.whole(table))
        return counted(self.by_key(table, (*effect.removed, *effect.added)).values())

    def _take(self, table: TableFacts, images: Sequence[Image]) -> None:
        if not table.key:
            for image in images:
                same = " AND ".join(map(_is_read, table.stored, image[1]))
                do(self._connection, f"DELETE FROM {table.quoted} WHERE {same} LIMIT 1")
            return
        for some in _parts(images):
            keys = [table.literals(image, table.key) for image in some]
            do(self._connection, f"DELETE FROM {table.quoted} WHERE {_among(table.key, keys)}")

    def _bring(self, table: TableFacts, images: Sequence[Image]) -> None:
        written = [each.name for each in table.stored if not each.generation]
        names = ", ".join(map(quoted, written))
        for some in _parts(images):
            values = ", ".join(f"({', '.join(table.literals(image, written))})" for image in some)
            do(self._connection, f"INSERT INTO {table.quoted} ({names}) VALUES {values}")

    def _require_references(self, table: TableFacts, effect: TableEffect) -> None:
        """Look whether all references from rows that came and to rows that went lead somewhere.

        Raises:
            Rejected: one does not.
        """
        for key in table.foreign_keys if effect.added else ():
            own = [table.literals(image, table.key) for image in effect.added]
            for some in _parts(own) if table.key else [[]]:
                self._require(key, _among(table.key, some, "c") if some else "TRUE")
        for key in self._catalogue.children.get(table.place, ()) if effect.removed else ():
            if key.child not in self._catalogue.tables:
                raise Rejected(f"table {key.child}: is in another schema, and may refer to what would be taken away")
            gone = [each for image in effect.removed if "NULL" not in (each := table.literals(image, key.target))]
            for some in _parts(gone):
                self._require(key, _among(key.columns, some, "c"))

    def _require(self, key: ForeignKey, condition: str) -> None:
        child, parent = quoted(*names_of(key.child)), quoted(*names_of(key.parent))
        refers = " AND ".join(f"c.{quoted(each)} IS NOT NULL" for each in key.columns)
        same = " AND ".join(
            f"p.{quoted(target)} = c.{quoted(own)}" for own, target in zip(key.columns, key.target, strict=True)
        )
        lost = rows(
            self._connection,
            f"SELECT 1 FROM {child} c WHERE ({condition}) AND {refers} AND NOT EXISTS (SELECT 1 FROM {parent} p WHERE "
            f"{same}) LIMIT 1",
        )
        if lost:
            raise Rejected(f"table {key.child}: rows would refer to what is not there (constraint {key.name})")


def _among(columns: Sequence[str], values: Sequence[Sequence[str]], row: str = "") -> str:
    """A condition that columns have the values of one of these rows; values are SQL."""
    names = [quoted(row, each) if row else quoted(each) for each in columns]
    if len(names) == 1:
        return f"{names[0]} IN ({', '.join(value for (value,) in values)})"
    return " OR ".join(
        "(" + " AND ".join(f"{name} = {value}" for name, value in zip(names, each, strict=True)) + ")"
        for each in values
    )


def _is_read(column: ColumnFacts, value: str | None) -> str:
    """A condition that a column is read as this value, whatever the server compares its type by."""
    text = "NULL" if value is None else f"'{value.encode().hex().upper()}'"
    return f"HEX(CONVERT(CONCAT({column.reading()}) USING utf8mb4)) <=> {text}"


def counted(images: Iterable[Image]) -> Counter[tuple[Any, ...]]:
    """How often each row is there."""
    return Counter((key, *values) for key, values in images)


def image_of(row: tuple[Any, ...]) -> Image:
    """The image of a row that was counted."""
    return row[0], [*row[1:]]


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), _AT_ONCE):
        yield things[start : start + _AT_ONCE]
