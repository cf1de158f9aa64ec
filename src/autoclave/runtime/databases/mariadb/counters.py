"""Numbers of AUTO_INCREMENT: whether statements have drawn some, and whether a counter stands elsewhere than before.

Neither is given back by a rollback or an undo. A number is drawn also where NULL, 0 or DEFAULT is given for it; and one
that is given and is not below the counter moves it all the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autoclave.runtime.databases.mariadb.catalogue import TableFacts
from autoclave.runtime.databases.mariadb.connection import rows
from autoclave.runtime.databases.mariadb.parsing import Statement
from autoclave.runtime.databases.mariadb.values import literal_of

_STANDING = "SELECT auto_increment FROM information_schema.tables WHERE table_schema = {} AND table_name = {}"


class Counters:
    """Those of `tables`, from now on."""

    def __init__(self, connection: Any, tables: Collection[TableFacts]) -> None:
        self._connection, self._tables = connection, [each for each in tables if each.counter]
        self.drawn: set[str] = set()
        """Tables of which some number was drawn, as far as the statements and the server tell."""
        self._before, self._last = self._standing(), self._last_drawn()

    def look(self, statement: Statement, table: TableFacts) -> None:
        """Look whether the last statement, which put rows into a table, has drawn numbers for them."""
        if table in self._tables and statement.verb in ("insert", "replace"):
            before, self._last = self._last, self._last_drawn()
            is_named = table.counter.lower() in map(str.lower, statement.columns)
            self.drawn |= {table.place} if self._last != before or not is_named else set()

    def moved(self) -> set[str]:
        """Tables of which the counter stands elsewhere."""
        now = self._standing()
        return {place for place, number in self._before.items() if now[place] != number}

    def _last_drawn(self) -> str | None:
        return rows(self._connection, "SELECT LAST_INSERT_ID()")[0][0] if self._tables else None

    def _standing(self) -> dict[str, Any]:
        return {
            each.place: rows(self._connection, _STANDING.format(literal_of(each.schema), literal_of(each.name)))
            for each in self._tables
        }
