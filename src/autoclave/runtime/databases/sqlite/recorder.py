"""What happens to the rows of an SQLite file while statements run.

A hook hears of every change before it happens, whatever brought it about: the statement, a cascade, a trigger, REPLACE,
or a virtual table that writes to the tables it keeps itself in. It takes down no more than which row it is. What the
rows were is read afterwards by a connection that sees the file as it was before the transaction, and what they are, by
its own: few statements, however many rows there are (`texts`). The hook does not see `sqlite_sequence`, nor how
`CREATE TABLE ... AS` fills a new table, which is read as a whole.

Where it is known what will happen, it is enough to hear which rows change.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import compress, pairwise
from operator import ne
from typing import TYPE_CHECKING, Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import TableEffect
from autoclave.runtime.databases.images import Images
from autoclave.runtime.databases.limits import too_many
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, quoted
from autoclave.runtime.databases.sqlite.texts import Places, all_lines, coded, equipped, lines_at, read_either_way

if TYPE_CHECKING:
    import apsw

_EVENTS_PER_ROW = 4


class Recorder:
    """Of one transaction on `tables`, as they are before it; interrupted where far more changes than `settings` allow.

    `reads_rows`: whether more is wanted than `rowids`, those of all rows that changed, in order, 0 where there is none.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        tables: Mapping[str, TableMaker],
        settings: DatabaseConnection,
        *,
        reads_rows: bool = True,
    ) -> None:
        self.rowids = array("q")
        self._connection, self._tables, self._settings, self._reads_rows = connection, tables, settings, reads_rows
        self._max_events = settings.max_rows * _EVENTS_PER_ROW + 1000
        self._turns: list[tuple[int, str]] = []
        """From which number of an event on it is about which table."""
        self._moved: dict[str, list[int]] = {}
        self._keys: dict[str, list[str]] = {}
        self._num_bytes = 0

    def __enter__(self) -> Recorder:
        append, tables, turns, last = self.rowids.append, self._tables, self._turns, ""
        has_rowids = True

        def hear(update: Any) -> None:
            nonlocal last, has_rowids
            if (name := update.table_name) != last:
                turns.append((len(self.rowids), name))
                last, has_rowids = name, name not in tables or tables[name].has_rowid
            append(rowid := update.rowid)
            if not has_rowids:
                self._hear_keys(update)
            elif (moved := update.rowid_new) != rowid:
                self._moved.setdefault(name, []).append(moved)

        self._connection.preupdate_hook(hear if self._reads_rows else lambda update: append(update.rowid))
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.preupdate_hook(None)

    def _hear_keys(self, update: Any) -> None:
        name = update.table_name
        rows = (row for row in (update.old, update.new) if row is not None)
        keys = (json.dumps([coded(row[number]) for number in self._tables[name].key]) for row in rows)
        self._keys.setdefault(name, []).extend(keys)

    @property
    def is_too_much(self) -> bool:
        """Whether far more has changed than one action may change, so that nobody need wait for the end."""
        return len(self.rowids) > self._max_events

    @cached_property
    def _heard(self) -> dict[str, Places]:
        """Which rows of which table changed, or may have."""
        found: dict[str, set[int]] = {}
        for (start, name), (end, _) in pairwise([*self._turns, (len(self.rowids), "")]):
            found.setdefault(name, set(self._moved.get(name, ()))).update(self.rowids[start:end])
        rowids = {name: array("q", sorted(some)) for name, some in found.items() if name not in self._keys}
        return {**rowids, **{name: [*dict.fromkeys(keys)] for name, keys in self._keys.items()}}

    @property
    def is_predictable(self) -> bool:
        """Whether what happened follows from the rows as they were and the statements alone, by what is known here.

        Not where virtual tables keep rows of their own, and have memory besides; nor with defaults that are computed.
        """
        heard = {name for name in self._heard if not name.startswith("sqlite_")}
        return all(
            name in self._tables and not self._tables[name].is_shadow and not self._tables[name].computes_defaults
            for name in heard
        )

    def table_effects(self, tables: Mapping[str, TableMaker], before: apsw.Connection) -> Iterator[TableEffect]:
        """What became of each table; `tables` as they are now, `before` sees the rows as they were.

        Raises:
            InputError: it is more than may be kept, or rows cannot be named.
        """
        new = {name for name, table in tables.items() if name not in self._tables and not table.is_view}
        with equipped(self._connection), equipped(before):
            for name in sorted(self._heard.keys() | new):
                table = tables.get(name)
                if table is None or name.startswith("sqlite_"):
                    continue
                if table.has_rowid and not table.rowid:
                    raise InputError(
                        f"table {name}: has columns of all the names of the rowid, so that its rows cannot be found "
                        "again"
                    )
                effect = self._filled(table) if name in new else self._changed(table, before)
                if effect.removed or effect.added:
                    yield effect

    def _filled(self, table: TableMaker) -> TableEffect:
        """A table that was not there before."""
        ((rows,),) = self._connection.execute(f"SELECT count(*) FROM main.{quoted(table.name)}")
        if rows > self._settings.max_rows:
            raise InputError(f"table {table.name}: {too_many(self._settings.max_rows)}")
        lines = read_either_way(lambda is_odd: all_lines(self._connection, table, is_odd=is_odd))
        self._num_bytes = self._kept(self._num_bytes, lines)
        return TableEffect(table.place, table.layout, added=Images(lines))

    def _changed(self, table: TableMaker, before: apsw.Connection) -> TableEffect:
        places = self._heard[table.name]
        went, came = read_either_way(lambda is_odd: self._compared(table, before, places, is_odd=is_odd))
        effect = TableEffect(table.place, table.layout, Images(went), Images(came))
        if table.is_by_rowid:
            num_both = len(went) + len(came) - self._num_changed
            counts = {"create": len(came) - num_both, "modify": num_both, "delete": len(went) - num_both}
            effect.with_counts({verb: rows for verb, rows in counts.items() if rows})
        return effect

    def _compared(
        self, table: TableMaker, before: apsw.Connection, places: Places, *, is_odd: bool
    ) -> tuple[list[str], list[str]]:
        """Lines of rows that went and of rows that came, out of those at some places."""
        went: list[str] = []
        came: list[str] = []
        num_changed, num_bytes, was = 0, self._num_bytes, self._tables.get(table.name)
        if was is not None and was.has_rowid != table.has_rowid:
            was = None
        then = lines_at(before, was, places, is_odd=is_odd) if was is not None else None
        for new in lines_at(self._connection, table, places, is_odd=is_odd):
            old = next(then) if then is not None else [""] * len(new)
            if isinstance(places, list):  # several spellings of a key may be those of one row
                pairs = dict.fromkeys(zip(old, new, strict=True))
                old, new = [one for one, _ in pairs], [other for _, other in pairs]
            is_changed = list(map(ne, old, new))
            num_changed += sum(is_changed)
            for lines, changed in ((went, old), (came, new)):
                lines += filter(None, compress(changed, is_changed))
                num_bytes = self._kept(num_bytes, compress(changed, is_changed))
        self._num_changed, self._num_bytes = num_changed, num_bytes
        return went, came

    def _kept(self, num_bytes: int, lines: Iterable[str]) -> int:
        """So many bytes with lines that are kept as well."""
        num_bytes += sum(map(len, lines))
        if num_bytes > (most := self._settings.max_bytes):
            raise InputError(f"changes rows of {num_bytes} bytes or more, more than {most} (max_bytes)")
        return num_bytes
