"""Rows of a MariaDB database: recorded while statements run, compared with their images, and written back.

All of it is done in the caller's transaction. Rows are written while the server looks at no foreign keys (`SET
foreign_key_checks = 0`), so that nothing is carried on to other rows; afterwards we look at the references ourselves.
What was written is read again, and compared.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pymysql.cursors

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image, TableEffect
from autoclave.runtime.databases.engine import TOO_MANY, FoundRows, Rejected
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts
from autoclave.runtime.databases.mariadb.connection import do, rows
from autoclave.runtime.databases.mariadb.parsing import Statement
from autoclave.runtime.databases.mariadb.values import ColumnFacts, quoted
from autoclave.runtime.databases.tables import ForeignKey, names_of

WHOLE_ROWS = 100_000
"""Tables that are compared as a whole may have so many rows."""
_AT_ONCE = 500
_TOLD = "1062"
"""A warning that a row was left out since one with its key is there."""


class Rows:
    """Of one database. `locks`: rows that are looked at, and places where there are none, stay as they are."""

    def __init__(self, connection: Any, catalogue: Catalogue, *, locks: bool = True) -> None:
        self._connection, self._catalogue = connection, catalogue
        self._locking = " FOR UPDATE" if locks else ""

    def where(self, table: TableFacts, condition: str, row: str = "", limit: int = 0) -> list[Image]:
        """Rows that meet a condition, in which the table has the name `row`."""
        alias = f" AS {quoted(row)}" if row and row != table.name else ""
        most = f" LIMIT {limit}" if limit else ""
        where = f" WHERE {condition}" if condition else ""
        reading = table.reading(quoted(row or table.name))
        query = f"SELECT {reading} FROM {table.quoted}{alias}{where}{most}{self._locking}"
        return [table.image(values) for values in rows(self._connection, query)]

    def whole(self, table: TableFacts) -> list[Image]:
        """All rows. Raises InputError where they are too many to be compared."""
        found = self.where(table, "", limit=WHOLE_ROWS + 1)
        if len(found) > WHOLE_ROWS:
            raise InputError(
                f"table {table.place}: has more than {WHOLE_ROWS} rows to compare, which a table without a primary "
                "key, REPLACE, ON DUPLICATE KEY, LIMIT and changed keys need. Fix: UPDATE or DELETE one table "
                "with a primary key by WHERE alone"
            )
        return found

    def by_key(self, table: TableFacts, images: Iterable[Image]) -> dict[str, Image]:
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
        parent, child = self._catalogue.tables[key.parent], self._catalogue.tables[key.child]
        return self.matching(child, key.columns, (parent.literals(image, key.target) for image in parents))

    def conflicting(self, effect: Effect) -> FoundRows:
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

    def write(self, effect: Effect) -> None:
        """Make an effect true, when no row conflicts.

        Raises Rejected where it would set off triggers, or references would lead nowhere.
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
        """Raise Rejected if a reference from a row that came, or to a row that went, leads nowhere."""
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
    return Counter((key, *values) for key, values in images)


def image_of(row: tuple[Any, ...]) -> Image:
    return row[0], [*row[1:]]


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), _AT_ONCE):
        yield things[start : start + _AT_ONCE]


class Recorder:
    """Records what statements did to rows, by reading these rows before and after each, under locks.

    A trigger cannot be made for one transaction, since MariaDB commits when something is defined. So, of a statement on
    one table, we lock and read the rows that its own condition finds, and those that its foreign keys carry it to; run
    it; and read them again by their keys. The server says how many rows it changed: were it others than those, the
    numbers would differ, and the action is refused. An INSERT returns the keys of its rows by itself. Of all other
    statements (REPLACE, ON DUPLICATE KEY, LIMIT, changed keys) and of tables without a key, all rows of the tables that
    they can reach are locked, read and compared, as far as these are not too many (`max_rows`: of one action).
    """

    def __init__(self, connection: Any, catalogue: Catalogue, max_rows: int) -> None:
        self._connection, self._catalogue, self._max_rows = connection, catalogue, max_rows
        self._rows = Rows(connection, catalogue)
        self._counts: dict[str, Counter[tuple[Any, ...]]] = {}
        """Of each table, how often rows came, less how often they went."""

    def run(self, statement: Statement, target: TableFacts) -> None:
        """Run a statement that writes `target`; raise InputError if what it changed cannot be told."""
        if statement.verb == "insert" and statement.is_single and target.key:
            self._insert(statement, target)
        elif statement.is_single and self._can_be_asked(statement, target):
            self._change(statement, target)
        else:
            self._compare(statement, target)

    def table_effects(self) -> Iterator[TableEffect]:
        for place, counts in sorted(self._counts.items()):
            removed, added = (tuple(map(image_of, sorted(some.elements(), key=repr))) for some in (-counts, +counts))
            if removed or added:
                yield TableEffect(place, self._catalogue.tables[place].layout, removed, added)

    def _changed(self, table: TableFacts, before: Iterable[Image], after: Iterable[Image]) -> set[str]:
        """Note what became of rows; the keys of those that changed."""
        went, came = counted(before), counted(after)
        counts = self._counts.setdefault(table.place, Counter())
        counts.update(came)
        counts.subtract(went)
        return {key for key, *_ in (*(went - came), *(came - went))}

    def _insert(self, statement: Statement, table: TableFacts) -> None:
        text = f"{statement.text[: statement.returning]} RETURNING {table.reading()}"
        came = [table.image(values) for values in self._few(text)]
        self._require_exact(statement)
        now = self._rows.by_key(table, came)
        if len(now) != len(came) or now.keys() != {key for key, _ in came}:
            raise self._unclear(table)
        self._changed(table, (), now.values())

    def _few(self, text: str) -> list[tuple[Any, ...]]:
        """Rows that a statement returns, if they are not too many."""
        with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(text)
            found = list(cursor.fetchmany(self._max_rows + 1))
            if len(found) > self._max_rows:
                while cursor.fetchmany(1000):  # the connection is of no use before
                    pass
        self._require_few(len(found))
        return found

    def _can_be_asked(self, statement: Statement, table: TableFacts) -> bool:
        """Return whether the rows that a statement will change, also by foreign keys, can be found beforehand."""
        tables = [self._catalogue.tables[place] for place in self._catalogue.with_cascades([table.place])]
        if not all(each.key for each in tables):
            return False
        children = self._catalogue.children
        if statement.verb == "update":
            targets = {name for key in children.get(table.place, ()) for name in key.target}
            generated = {each.name for each in table.columns if each.generation}
            changed = {name.lower() for name in targets | {*table.key}}
            return not {*map(str.lower, statement.columns)} & changed and not generated & targets
        carried = [key for each in tables for key in each.foreign_keys if not key.deletes]
        return not any({*key.columns} & {*more.target} for key in carried for more in children.get(key.child, ()))

    def _change(self, statement: Statement, table: TableFacts) -> None:
        direct = self._rows.where(table, statement.where, statement.row, self._max_rows + 1)
        self._require_few(len(direct))
        found = {table.place: dict(direct)}
        if statement.verb == "delete":
            self._follow(table, direct, found)
        affected = do(self._connection, statement.text[: statement.returning])
        self._require_exact(statement)
        for place, before in found.items():
            each = self._catalogue.tables[place]
            now = self._rows.by_key(each, before.items())
            changed = self._changed(each, before.items(), now.values())
            if place == table.place and len(changed & {key for key, _ in direct}) != affected:
                raise self._unclear(table)

    def _follow(self, table: TableFacts, gone: Iterable[Image], found: dict[str, dict[str, Any]]) -> None:
        """Add rows that go, or refer to nothing, when others go."""
        for key in self._catalogue.children.get(table.place, ()):
            if not key.carries:
                continue
            child = self._catalogue.tables[key.child]
            known = found.setdefault(child.place, {})
            new = [image for image in self._rows.referring(key, list(gone)) if image[0] not in known]
            known.update(new)
            self._require_few(sum(map(len, found.values())))
            if key.deletes and new:
                self._follow(child, new, found)

    def _compare(self, statement: Statement, target: TableFacts) -> None:
        places = self._catalogue.with_cascades([target.place])
        tables = [self._catalogue.tables[place] for place in sorted(places)]
        before = {table.place: self._rows.whole(table) for table in tables}
        affected = do(self._connection, statement.text)
        self._require_exact(statement)
        num_changed = 0
        for table in tables:
            old, new = before[table.place], self._rows.whole(table)
            keys, went, came = self._changed(table, old, new), counted(old), counted(new)
            num_changed += len(keys) if table.key else max((came - went).total(), (went - came).total())
        if statement.verb in ("update", "delete") and affected > num_changed:
            raise InputError(f"changed {affected} rows, and {num_changed} were seen to change; it is taken back")

    def _require_exact(self, statement: Statement) -> None:
        """Raise InputError if values that did not fit were changed silently, as IGNORE does."""
        if not statement.ignores:
            return
        if odd := sorted({number for _, number, _ in rows(self._connection, "SHOW WARNINGS")} - {_TOLD}):
            raise InputError(f"IGNORE would change values that do not fit, or leave out others ({', '.join(odd)})")

    def _require_few(self, num_rows: int) -> None:
        if num_rows > self._max_rows:
            raise InputError(TOO_MANY.format(self._max_rows))

    def _unclear(self, table: TableFacts) -> InputError:
        return InputError(
            f"table {table.place}: the statement changed other rows than its condition finds; it is taken back"
        )
