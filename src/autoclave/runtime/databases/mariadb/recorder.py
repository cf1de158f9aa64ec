"""What statements did to rows, told by reading these rows before and after each, under locks.

A trigger cannot be made for one transaction, since MariaDB commits when something is defined. So, of a statement on one
table, we lock and read the rows that its own condition finds, and those that its foreign keys carry it to; run it; and
read them again by their keys. The server says how many rows it changed: were it others than those, the numbers would
differ, and the action is refused. An INSERT returns the keys of its rows by itself. Of all other statements
(REPLACE, ON DUPLICATE KEY, LIMIT, changed keys) and of tables without a key, all rows of the tables that they
can reach are locked, read and compared, as far as these are not too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image, TableEffect
from autoclave.runtime.databases.engine import TOO_MANY
from autoclave.runtime.databases.mariadb.catalogue import Catalogue, TableFacts
from autoclave.runtime.databases.mariadb.connection import do, rows
from autoclave.runtime.databases.mariadb.parsing import Statement
from autoclave.runtime.databases.mariadb.rows import Rows, counted, image_of

_TOLD = "1062"
"""A warning that a row was left out since one with its key is there."""


class Recorder:
    """Of one transaction. `max_rows`: of one action."""

    def __init__(self, connection: Any, catalogue: Catalogue, max_rows: int) -> None:
        self._connection, self._catalogue, self._max_rows = connection, catalogue, max_rows
        self._rows = Rows(connection, catalogue)
        self._counts: dict[str, Counter[tuple[Any, ...]]] = {}
        """Of each table, how often rows came, less how often they went."""

    def run(self, statement: Statement, target: TableFacts) -> None:
        """Run a statement. `target`: the table that it writes.

        Raises:
            InputError: what it changed cannot be told.
        """
        if statement.verb == "insert" and statement.is_single and target.key:
            self._insert(statement, target)
        elif statement.is_single and self._can_be_asked(statement, target):
            self._change(statement, target)
        else:
            self._compare(statement, target)

    def table_effects(self) -> Iterator[TableEffect]:
        """What became of each table."""
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

    # --- Rows that are told by themselves ---------------------------------------------------------------------------

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
        import pymysql.cursors

        with self._connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(text)
            found = list(cursor.fetchmany(self._max_rows + 1))
            if len(found) > self._max_rows:
                while cursor.fetchmany(1000):  # the connection is of no use before
                    pass
        self._require_few(len(found))
        return found

    # --- Rows that are asked for ------------------------------------------------------------------------------------

    def _can_be_asked(self, statement: Statement, table: TableFacts) -> bool:
        """Whether the rows that a statement will change, directly and by foreign keys, can be found beforehand."""
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

    # --- Tables that are compared -----------------------------------------------------------------------------------

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

    def _require_few(self, num_rows: int) -> None:
        if num_rows > self._max_rows:
            raise InputError(TOO_MANY.format(self._max_rows))

    def _unclear(self, table: TableFacts) -> InputError:
        return InputError(
            f"table {table.place}: the statement changed other rows than its condition finds; it is taken back"
        )
