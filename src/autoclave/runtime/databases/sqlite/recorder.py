"""What happens to the rows of an SQLite file while statements run, told by SQLite itself before each change.

The hook sees every change of a row, whatever brought it about: the statement, a cascade, a trigger, REPLACE, or a
virtual table that writes to the tables it keeps itself in. It does not see `sqlite_sequence`, nor rows of new tables
and of those with columns that are computed when read: such tables are compared as a whole.

Where it is known what will happen, it is enough to hear which rows change, which costs a tenth of reading them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image, TableEffect, is_same, net
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, quoted

if TYPE_CHECKING:
    import apsw

_WHOLE_ROWS = 100_000
"""Tables that are compared as a whole may have so many rows."""

Event = tuple[int, int, Any, Any]


class Recorder:
    """Of one transaction. `max_events`: changes of rows after which it is interrupted.

    `reads_rows`: whether more is wanted than `rowids`, those of all rows that changed, in order, 0 where there is none.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tables: Mapping[str, TableMaker],
        max_events: int,
        *,
        reads_rows: bool = True,
    ) -> None:
        self.rowids = array("q")
        self._reads_rows = reads_rows
        self._connection, self._tables, self._max_events = connection, tables, max_events
        self._events: dict[str, list[Event]] = {}
        self.is_too_much = False
        self._odd = {name for name, table in tables.items() if not table.is_whole_in_events and not table.is_view}
        odd = self._odd if reads_rows else ()
        self._whole = {name: whole for name in odd if (whole := self._rows(tables[name])) is not None}

    def __enter__(self) -> Recorder:
        append = self.rowids.append
        self._connection.preupdate_hook(self._hear if self._reads_rows else lambda update: append(update.rowid))
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.preupdate_hook(None)

    def _hear(self, update: Any) -> None:
        table = update.table_name
        self.rowids.append(update.rowid)
        if len(self.rowids) > self._max_events:
            self.is_too_much = True
            self._connection.interrupt()
            return
        events = self._events.setdefault(table, [])
        if table in self._odd:
            return
        do = update.op
        old = update.old if do != "INSERT" else None
        new = update.new if do != "DELETE" else None
        events.append((update.rowid, update.rowid_new, old, new))

    @property
    def is_predictable(self) -> bool:
        """Whether what happened follows from the rows as they were and the statements alone, by what is known here.

        Not where virtual tables keep rows of their own, and have memory besides; nor with defaults that are computed.
        """
        heard = {name for name in self._events if not name.startswith("sqlite_")}
        return not heard & self._odd and all(
            name in self._tables and not self._tables[name].is_shadow and not self._tables[name].computes_defaults
            for name in heard
        )

    def table_effects(self, tables: Mapping[str, TableMaker]) -> Iterator[TableEffect]:
        """What became of each table; `tables` as they are now.

        Raises:
            InputError: a table that changed is too large to be compared, or its rows cannot be named.
        """
        new = {name for name, table in tables.items() if name not in self._tables and not table.is_view}
        for name in sorted(self._events.keys() | new):
            table, events = tables.get(name), self._events.get(name, [])
            if table is None or name.startswith("sqlite_"):
                continue
            if table.has_rowid and not table.rowid:
                raise InputError(
                    f"table {name}: has columns of all the names of the rowid, so that its rows cannot be found again"
                )
            if name in self._odd | new or not table.is_whole_in_events:  # CREATE TABLE ... AS fills it unheard
                removed, added = self._compared(name, table)
            else:
                removed, added = net(_by_key(table, events))
            if removed or added:
                yield TableEffect(table.place, table.layout, tuple(removed), tuple(added))

    def _compared(self, name: str, table: TableMaker) -> tuple[list[Image], list[Image]]:
        before = self._whole.get(name, {} if name not in self._tables else None)
        after = self._rows(table)
        if before is None or after is None:
            raise InputError(
                f"table {name}: has columns that are computed, and more than {_WHOLE_ROWS} rows to compare"
            )
        changed = [key for key in {**before, **after} if not is_same(before.get(key), after.get(key))]
        return (
            [before[key] for key in changed if key in before],
            [after[key] for key in changed if key in after],
        )

    def _rows(self, table: TableMaker) -> dict[str, Image] | None:
        """All rows by their keys; None if there are too many."""
        found: dict[str, Image] = {}
        for image in all_rows(self._connection, table):
            found[image[0]] = image
            if len(found) > _WHOLE_ROWS:
                return None
        return found


def all_rows(connection: apsw.Connection, table: TableMaker) -> Iterator[Image]:
    columns = ", ".join(quoted(column[0]) for column in table.stored)
    first = table.rowid if table.has_rowid and table.rowid else "0"
    for rowid, *values in connection.execute(f"SELECT {first}, {columns} FROM main.{quoted(table.name)}"):
        yield table.image(rowid, values)


def _by_key(table: TableMaker, events: list[Event]) -> Iterator[tuple[str, Image | None, Image | None]]:
    image = table.image
    for rowid, rowid_new, old, new in events:
        before = None if old is None else image(rowid, old)
        after = None if new is None else image(rowid_new, new)
        if before is not None and after is not None and before[0] == after[0]:
            yield before[0], before, after
            continue
        if before is not None:
            yield before[0], before, None
        if after is not None:
            yield after[0], None, after
