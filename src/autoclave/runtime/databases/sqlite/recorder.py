"""What happens to the rows of an SQLite file while statements run.

A hook hears of every change before it happens, whatever brought it about: the statement, a cascade, a trigger, REPLACE,
or a virtual table that writes to the tables it keeps itself in. It takes down no more than which row it is. What the
rows were is copied afterwards by a connection that sees the file as it was before the transaction, and what they are,
by its own. The hook does not see `sqlite_sequence`, nor how `CREATE TABLE ... AS` fills a new table, which is copied as
a whole.

SQLite's session extension is no help here: it leaves out rows with NULL in their keys, rowids beside a key, and the
columns of a row that did not change, and its changesets lose rows whose keys change in their spelling alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoclave.core import InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.sqlite.catalogue import TableMaker
from autoclave.runtime.databases.sqlite.rows import CAME, WENT, Copy, attach, net
from autoclave.runtime.databases.sqlite.stored import StoredEffect

if TYPE_CHECKING:
    import apsw

_PLACES_PER_ROW = 4


class Recorder:
    """Of one transaction on `tables`, as they are before it."""

    def __init__(
        self, connection: apsw.Connection, tables: Mapping[str, TableMaker], settings: DatabaseConnection
    ) -> None:
        self._connection, self._tables, self._settings = connection, tables, settings
        self._rows: dict[str, set[Any]] = defaultdict(set)
        """Which rows of which table changed, or may have."""
        self._most_rows = settings.max_rows * _PLACES_PER_ROW + 1000

    def __enter__(self) -> Recorder:
        rows, keys = self._rows, {name: table.key for name, table in self._tables.items() if not table.has_rowid}

        def hear(update: Any) -> None:
            name = update.table_name
            if name not in keys:
                rows[name].add(rowid := update.rowid)
                if update.rowid_new != rowid:
                    rows[name].add(update.rowid_new)
                return
            for row in (update.old, update.new):
                if row is not None:
                    rows[name].add(tuple(row[number] for number in keys[name]))

        self._connection.preupdate_hook(hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.preupdate_hook(None)

    @property
    def is_too_much(self) -> bool:
        """Whether far more has changed than one action may change, so that nobody need wait for the end."""
        return sum(map(len, self._rows.values())) > self._most_rows

    def effect(self, tables: Mapping[str, TableMaker], before: apsw.Connection) -> StoredEffect:
        """What became of the rows; `tables` as they are now, `before` sees the rows as they were.

        Raises:
            InputError: it is more than may be kept, or rows cannot be named.
        """
        new = {name for name, table in tables.items() if not table.is_view and self._is_new(table)}
        names = sorted(each for each in self._rows.keys() | new if each in tables and not each.startswith("sqlite_"))
        for name in names:
            if tables[name].has_rowid and not tables[name].rowid:
                raise InputError(
                    f"table {name}: has columns of all the names of the rowid, so that its rows cannot be found again"
                )
        if not names:
            return StoredEffect()
        was = {name: self._tables[name] for name in names if name not in new}
        shapes = [
            max((each[name] for each in (was, tables) if name in each), key=lambda t: len(t.stored)) for name in names
        ]
        copies = [
            Copy(shape, None if name in new else self._rows[name]) for name, shape in zip(names, shapes, strict=True)
        ]
        self._copy(before, WENT, was, copies)
        self._copy(self._connection, CAME, tables, copies)
        effect = net(before, self._connection, [tables[name] for name in names])
        if (num_bytes := len(effect.went) + len(effect.came)) > (most := self._settings.max_bytes):
            raise InputError(f"changes rows of {num_bytes} bytes, more than {most} (max_bytes)")
        return effect

    def _is_new(self, table: TableMaker) -> bool:
        """Whether a table was not there before, or its rows had names of another kind."""
        was = self._tables.get(table.name)
        return was is None or (was.has_rowid, len(was.key)) != (table.has_rowid, len(table.key))

    def _copy(
        self, connection: apsw.Connection, place: str, tables: Mapping[str, TableMaker], copies: Sequence[Copy]
    ) -> None:
        """Put the rows of some tables, as a connection sees them, beside its file."""
        import apsw

        most = self._settings.max_bytes
        attach(connection, place, most_bytes=most)
        try:
            for number, copy in enumerate(copies):
                copy.run(connection, f"{place}.t{number}", tables.get(copy.name), self._settings.max_rows + 1)
        except apsw.FullError:
            raise InputError(f"changes rows of more than {most} bytes (max_bytes)") from None
