"""What statements did to rows, told by reading these rows before and after each, under locks.

A trigger cannot be made for one transaction, since MariaDB commits when something is defined. So, of a statement on one
table, we lock and read the rows that its own condition finds, and those that its foreign keys carry it to; run it; and
read them again by their keys. The server says how many rows it changed: were it others than those, the numbers would
differ, and the action is refused. An INSERT returns the keys of its rows by itself. Of all other statements
(REPLACE, ON DUPLICATE KEY, joins, LIMIT, changed keys) and of tables without a key, all rows of the tables that they
can reach are locked, read and compared, as far as these are not too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image, TableEffect, is_same, net
from autoclave.runtime.databases.limits import too_many
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts
from autoclave.runtime.databases.mariadb.connection import do, rows
from autoclave.runtime.databases.mariadb.parsing import Statement
from autoclave.runtime.databases.mariadb.rows import Rows

_TOLD = "1062"
"""A warning that a row was left out since one with its key is there."""
Event = tuple[str, Image | None, Image | None]
Found = dict[str, dict[str, Image]]
"""Rows by table and key."""


class Recorder:
    """Of one transaction. `max_rows`: of one action."""

    def __init__(self, connection: Any, catalogue: Catalogue, max_rows: int) -> None:
        self._connection, self._catalogue, self._max_rows = connection, catalogue, max_rows
        self._rows = Rows(connection, catalogue)
        self._events: dict[str, list[Event]] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._images: dict[str, Image] = {}

    def run(self, statement: Statement, target: TableFacts, places: Sequence[str]) -> None:
        """Run a statement. `target`: the first table that it writes; `places`: all of them.

        Raises:
            InputError: what it changed cannot be told.
        """
        if statement.verb == "insert" and statement.is_single and target.key:
            self._insert(statement, target)
        elif statement.is_single and self._can_be_asked(statement, target):
            self._change(statement, target)
        else:
            self._compare(statement, places)

    def table_effects(self) -> Iterator[TableEffect]:
        """What became of each table."""
        for place in sorted(self._events.keys() | self._counts.keys()):
            removed, added = net(self._events.get(place, ()))
            counts = self._counts.get(place, Counter())
            for text, number in sorted(counts.items()):
                (added if number > 0 else removed).extend([self._images[text]] * abs(number))
            if removed or added:
                yield TableEffect(place, self._catalogue.tables[place].layout, tuple(removed), tuple(added))

    # --- Rows that are told by themselves ---------------------------------------------------------------------------

    def _insert(self, statement: Statement, table: TableFacts) -> None:
        text = f"{statement.text[: statement.returning]} RETURNING {table.reading()}"
        came = [table.image(values) for values in self._few(text)]
        self._require_exact(statement)
        if len({image[0] for image in came}) != len(came):
            raise self._unclear(table)
        now = self._rows.by_key(table, came)
        if now.keys() != {image[0] for image in came}:
            raise self._unclear(table)
        self._events.setdefault(table.place, []).extend((key, None, image) for key, image in now.items())

    def _few(self, text: str) -> list[tuple[Any, ...]]:
        """Rows that a statement returns, if they are not too many."""
        import pymysql.cursors

        with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(text)
            found = list(cursor.fetchmany(self._max_rows + 1))
            if len(found) > self._max_rows:
                while cursor.fetchmany(1000):  # the connection is of no use before
                    pass
                raise self._too_many()
        return found

    # --- Rows that are asked for ------------------------------------------------------------------------------------

    def _can_be_asked(self, statement: Statement, table: TableFacts) -> bool:
        """Whether the rows that a statement will change, directly and by foreign keys, can be found beforehand."""
        tables = [self._catalogue.tables[place] for place in self._catalogue.with_cascades([table.place])]
        if not all(each.key for each in tables):
            return False
        if statement.verb == "update":
            targets = {name for key in self._catalogue.children.get(table.place, ()) for name in key.target}
            generated = {each.name for each in table.columns if each.is_generated}
            return not {*map(str.lower, statement.columns)} & {name.lower() for name in targets | {*table.key}} and (
                not generated & targets
            )
        carried = [key for each in tables for key in each.foreign_keys if key.deleting != "CASCADE"]
        targets_of = self._catalogue.children
        return not any(set(key.columns) & set(more.target) for key in carried for more in targets_of.get(key.child, ()))

    def _change(self, statement: Statement, table: TableFacts) -> None:
        before = self._rows.where(table, statement.where, statement.row, self._max_rows + 1)
        if len(before) > self._max_rows:
            raise self._too_many()
        found: Found = {table.place: _by_key(before)}
        if statement.verb == "delete":
            self._follow(table, before, found)
        affected = do(self._connection, statement.text[: statement.returning])
        self._require_exact(statement)
        direct = {key for key, _ in before}
        changed = 0
        for place, images in found.items():
            now = self._rows.by_key(self._catalogue.tables[place], images.values())
            for key, old in images.items():
                new = now.get(key)
                if not is_same(old, new):
                    changed += place == table.place and key in direct
                    self._events.setdefault(place, []).append((key, old, new))
        if changed != affected:
            raise self._unclear(table)

    def _follow(self, table: TableFacts, gone: Iterable[Image], found: Found) -> None:
        """Add rows that go, or refer to nothing, when others go."""
        for key in self._catalogue.children.get(table.place, ()):
            if not key.carries:
                continue
            child = self._catalogue.tables[key.child]
            known = found.setdefault(child.place, {})
            new = [image for image in self._rows.referring(key, list(gone)) if image[0] not in known]
            known.update(_by_key(new))
            if sum(map(len, found.values())) > self._max_rows:
                raise self._too_many()
            if key.deleting == "CASCADE" and new:
                self._follow(child, new, found)

    # --- Tables that are compared -----------------------------------------------------------------------------------

    def _compare(self, statement: Statement, places: Sequence[str]) -> None:
        tables = [self._catalogue.tables[place] for place in sorted(self._catalogue.with_cascades(places))]
        before = {table.place: self._rows.whole(table) for table in tables}
        affected = do(self._connection, statement.text)
        self._require_exact(statement)
        changed = 0
        for table in tables:
            after = self._rows.whole(table)
            if table.key:
                old, new = _by_key(before[table.place]), _by_key(after)
                events = [
                    (key, old.get(key), new.get(key))
                    for key in {**old, **new}
                    if not is_same(old.get(key), new.get(key))
                ]
                changed += len(events)
                self._events.setdefault(table.place, []).extend(events)
                continue
            came = Counter(map(self._as_text, after))
            went = Counter(map(self._as_text, before[table.place]))
            changed += max((came - went).total(), (went - came).total())
            counts = self._counts.setdefault(table.place, Counter())
            counts.update(came)
            counts.subtract(went)
        if statement.verb in ("update", "delete") and affected > changed:
            raise InputError(f"changed {affected} rows, and {changed} were seen to change; it is taken back")

    def _as_text(self, image: Image) -> str:
        text = repr(image)
        self._images.setdefault(text, image)
        return text

    # --- Looks at what was done -------------------------------------------------------------------------------------

    def _require_exact(self, statement: Statement) -> None:
        """Look whether values that did not fit were changed silently, as IGNORE does.

        Raises:
            InputError: they were.
        """
        if not statement.ignores:
            return
        if odd := sorted({number for _, number, _ in rows(self._connection, "SHOW WARNINGS")} - {_TOLD}):
            raise InputError(f"IGNORE would change values that do not fit, or leave out others ({', '.join(odd)})")

    def _unclear(self, table: TableFacts) -> InputError:
        return InputError(
            f"table {table.place}: the statement changed other rows than its condition finds; it is taken back"
        )

    def _too_many(self) -> InputError:
        return InputError(too_many(self._max_rows))


def _by_key(images: Iterable[Image]) -> dict[str, Image]:
    return {image[0]: image for image in images}
