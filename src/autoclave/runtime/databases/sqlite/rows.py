"""Rows of an SQLite file: recorded while statements run, kept, compared, and written back; all of it by SQLite.

A hook hears of every change before it happens, whatever brought it about: the statement, a cascade, a trigger, REPLACE,
or a virtual table that writes to the tables it keeps itself in. It takes down no more than which row it is. What the
rows were is copied afterwards by a connection that sees the file as it was before the transaction, and what they are,
by its own. The hook does not see `sqlite_sequence`, nor how `CREATE TABLE ... AS` fills a new table.

SQLite's session extension is no help here: it leaves out rows with NULL in their keys, rowids beside a key, and the
columns of a row that did not change, and its changesets lose rows whose keys change in their spelling alone.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apsw

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, Image, TableEffect
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.sqlite.catalogue import TableFacts, counters_of
from autoclave.runtime.databases.sqlite.stored import StoredEffect, StoredRows, StoredTable, images_of
from autoclave.runtime.databases.tables import name_of, quoted

WENT, CAME = "autoclave_went", "autoclave_came"
"""Names of kept databases beside a file. No statement that is proposed is compiled while they are there."""
_PAGE_BYTES, _PLACES_PER_ROW = 1024, 4


def _all(terms: Sequence[str]) -> str:
    """All of them; balanced, since SQLite limits the depth of an expression."""
    if len(terms) < 2:
        return "".join(terms) or "1"
    half = len(terms) // 2
    return f"({_all(terms[:half])} AND {_all(terms[half:])})"


def _same_row(table: TableFacts, columns: Sequence[str]) -> str:
    """The values of a row `a` in a kept database, and those of another row in its place, are the same to the last bit.

    1 and 1.0 are not, nor are 0.0 and -0.0, nor texts that are spelt alike: the collation and affinity of `a` count.
    """
    kinds = [column[1].upper() for column in table.stored]
    pairs = enumerate(zip(columns, kinds, strict=True))
    return _all([_same(f"a.c{n}", *each) for n, each in pairs if n != table.alias])


def _same(one: str, other: str, kind: str) -> str:
    """Two values of a column of a type are the same; what the type keeps out of the column is not looked at."""
    if "INT" not in kind and any(each in kind for each in ("CHAR", "CLOB", "TEXT")):  # numbers become texts
        return f"{one} IS {other}"
    same_type = f"typeof({one}) = typeof({other})"
    is_numeric = kind.startswith(("NUMERIC", "DECIMAL")) and not any(each in kind for each in ("REAL", "FLOA", "DOUB"))
    if "INT" in kind or is_numeric:  # a number without a fraction becomes an integer, but for the least one
        return f"({one} IS {other} AND ({one} IS NOT -9223372036854775808 OR {same_type}))"
    return f"({one} IS {other} AND {same_type} AND ({one} IS NOT 0.0 OR atan2({one}, -1) IS atan2({other}, -1)))"


def _is_there(table: TableFacts) -> str:
    """A condition that a row `t` of the file is where a kept row `a` was: by its rowid, else by its key."""
    return f"t.{table.rowid} = a.rowid" if table.has_rowid else _has_key_of(table)


def _has_key_of(table: TableFacts) -> str:
    """A condition that a row `t` of the file has the key of a kept row `a`; none where a key has NULL in it."""
    return _all([f"t.{name} = a.c{n}" for n, name in zip(table.key_places, table.key_columns, strict=True)])


def _is_named_as(table: TableFacts) -> str:
    """A condition that a row `t` of the file has the name of a kept row `a`: its key, else its rowid."""
    if not table.has_rowid or not table.key:
        return _is_there(table)
    has_no_key = " OR ".join(f"a.c{n} IS NULL" for n in table.key_places)
    return f"({_has_key_of(table)} OR ({has_no_key}) AND {_is_there(table)})"


def _names(table: TableFacts) -> tuple[str, str]:
    """Return what a row `t` of the file is named by, and what a kept row is."""
    if table.has_rowid:
        return f"t.{table.rowid}", "rowid"
    return f"({', '.join(f't.{each}' for each in table.key_columns)})", _numbered(table.key_places)


def attach(connection: apsw.Connection, name: str, content: bytes = b"", most_bytes: int = 1 << 40) -> None:
    """Put a kept database, or an empty one, beside a file."""
    connection.execute(f"ATTACH ':memory:' AS {name}")
    if content:
        connection.deserialize(name, content)
    else:
        connection.execute(f"PRAGMA {name}.page_size = {_PAGE_BYTES}")
        connection.execute(f"PRAGMA {name}.max_page_count = {most_bytes // _PAGE_BYTES + 1}")


def detach(connection: apsw.Connection) -> None:
    """Take away the kept databases that are beside a file; not in a transaction."""
    for name in connection.db_names():
        if name in (WENT, CAME):
            connection.execute(f"DETACH {name}")


def _numbered(places: Iterable[int]) -> str:
    return ", ".join(f"c{n}" for n in places)


def copy(connection: apsw.Connection, place: str, table: TableFacts, rows: Collection[Any]) -> None:
    """Keep rows of a table, which are given by their rowids or keys, as a connection sees them, in a new one."""
    unique = "" if table.has_rowid else f", UNIQUE ({_numbered(table.key_places)})"
    target, columns = _numbered(range(len(table.stored))), [f"t.{quoted(each[0])}" for each in table.stored]
    connection.execute(f"CREATE TABLE {place} ({target}{unique})")
    if table.has_rowid:
        target, columns = f"rowid, {target}", [f"t.{table.rowid}", *columns]
    insert = f"INSERT OR IGNORE INTO {place} ({target}) SELECT {', '.join(columns)} FROM"
    file = f"main.{quoted(table.name)} t"
    if table.has_rowid:
        numbers = apsw.carray(array("q", sorted(rows)))
        connection.execute(f"{insert} carray(?) n CROSS JOIN {file} ON t.{table.rowid} = n.value", (numbers,))
    else:
        key = _all([f"t.{name} = ?" for name in table.key_columns])
        connection.executemany(f"{insert} {file} WHERE {key}", sorted(rows, key=repr))


def net(before: apsw.Connection, after: apsw.Connection, tables: Sequence[TableFacts]) -> StoredEffect:
    """The effect of which two connections have the rows beside a file, without those that are as they were.

    `before` has those that went, `after` those that came.
    """
    attach(after, WENT, went := before.serialize(WENT))
    counts = [_counts(before, after, number, table) for number, table in enumerate(tables)]
    if any(num_unchanged for num_unchanged, *_ in counts):
        went = before.serialize(WENT)
    came, effects = after.serialize(CAME), list[StoredTable]()
    for number, (table, (_, num_went, num_came, num_modified)) in enumerate(zip(tables, counts, strict=True)):
        if num_went or num_came:
            removed = StoredRows(went, number, num_went, table.naming)
            added = StoredRows(came, number, num_came, table.naming)
            effects.append(StoredTable(table.place, table.layout, removed, added, num_modified))
    return StoredEffect(tuple(effects), went=went, came=came)


def _counts(
    before: apsw.Connection, after: apsw.Connection, number: int, table: TableFacts
) -> tuple[int, int, int, int]:
    """Return the numbers of unchanged rows, which are taken out, and of rows left that went, came, and did both.

    `after` has the rows that went, too, as a copy.
    """
    w, c, by_key = f"{WENT}.t{number}", f"{CAME}.t{number}", [f"t.c{n} = a.c{n}" for n in table.key_places]
    same = _same_row(table, [f"t.c{n}" for n in range(len(table.stored))])
    on = "t.rowid = a.rowid" if table.has_rowid else _all(by_key)
    unchanged = list(after.execute(f"SELECT a.rowid, t.rowid FROM {w} a CROSS JOIN {c} t ON {on} WHERE {same}"))
    before.executemany(f"DELETE FROM {w} WHERE rowid = ?", [(row,) for row, _ in unchanged])
    after.executemany(f"DELETE FROM {c} WHERE rowid = ?", [(row,) for _, row in unchanged])
    same_key = [each.replace(" = ", " IS ") for each in by_key] if table.alias is None else []
    ((num_modified,),) = after.execute(f"SELECT count(*) FROM {c} t CROSS JOIN {w} a ON {_all([on, *same_key])}")
    ((num_went,),), ((num_came,),) = (
        connection.execute(f"SELECT count(*) FROM {rows}") for connection, rows in ((before, w), (after, c))
    )
    return len(unchanged), num_went, num_came, num_modified


class Rows:
    """Of one file and of one effect, which is put beside it, in one transaction; `tables`: those of the file in it."""

    def __init__(self, connection: apsw.Connection, effect: Effect) -> None:
        self._connection, self._effect = connection, effect
        self._numbers = {each.table: number for number, each in enumerate(effect.tables)}
        if isinstance(effect, StoredEffect):
            for name, content in ((WENT, effect.went), (CAME, effect.came)) if effect.tables else ():
                attach(connection, name, content)
            self._numbers = {
                each.table: each.removed.number for each in effect.tables if isinstance(each.removed, StoredRows)
            }
            return
        for name in (WENT, CAME):
            attach(connection, name)
            for number, each in enumerate(effect.tables):
                _insert(connection, f"{name}.t{number}", each, each.removed if name == WENT else each.added)

    def conflicting(
        self, tables: Mapping[str, TableFacts], *, by_rowids: bool = False, forwards: bool = True
    ) -> dict[tuple[str, str], Image | None]:
        """See `Engine.conflicting`. `by_rowids`: also where rows come whose rowids are nothing but places.

        `forwards`: what stands against the effect; else against its inverse.
        """
        went, came = (WENT, CAME) if forwards else (CAME, WENT)
        found: dict[tuple[str, str], Image | None] = {}
        for each in self._effect.tables:
            table = tables.get(name_of(each.table))
            if table is None or table.layout != each.layout:
                found[each.table, ""] = None
                continue
            gone, coming = (f"{name}.t{self._numbers[each.table]}" for name in (went, came))
            file, (own, kept) = f"main.{quoted(table.name)}", _names(table)
            same = _same_row(table, [f"t.{quoted(each[0])}" for each in table.stored])
            is_gone = f"{own if table.has_rowid else f't.{table.key_columns[0]}'} IS NULL"
            as_it_was = f"LEFT JOIN {file} t ON {_is_there(table)} AND {same}"
            found |= self._now(table, gone, f"SELECT a.rowid FROM {gone} a {as_it_was} WHERE {is_gone}")
            if (by_rowids or table.key) and ("create" if forwards else "delete") in each.counts:
                on = _is_named_as(table) if by_rowids else _has_key_of(table)
                in_the_way = f"FROM {coming} a CROSS JOIN {file} t ON {on}"
                query = f"SELECT a.rowid {in_the_way} WHERE {own} NOT IN (SELECT {kept} FROM {gone})"
                found |= self._now(table, coming, query)
        return found

    def _now(self, table: TableFacts, kept: str, query: str) -> dict[tuple[str, str], Image | None]:
        """The rows of the file under the names of some kept rows, by these names."""
        found: dict[tuple[str, str], Image | None] = {}
        naming, file = table.naming, f"main.{quoted(table.name)}"
        columns = ["a.rowid" if table.has_rowid else "NULL", *(f"a.c{n}" for n in range(len(table.stored)))]
        now = [f"t.{table.rowid}" if table.has_rowid else "NULL", *(f"t.{quoted(each[0])}" for each in table.stored)]
        for (row,) in list(self._connection.execute(query)):
            ((key, _),) = images_of(self._connection, naming, columns, f"FROM {kept} a WHERE a.rowid = {row}")
            there = f"FROM {kept} a CROSS JOIN {file} t ON {_is_named_as(table)} WHERE a.rowid = {row}"
            found[table.place, key] = next(iter(images_of(self._connection, naming, now, there)), None)
        return found

    def write(self, tables: Mapping[str, TableFacts]) -> None:
        """Make the effect true. The caller has the transaction, and has looked that no row conflicts."""
        for each in self._effect.tables:
            table = tables[name_of(each.table)]
            if not table.is_replaced or "delete" in each.counts:
                self._take(table, self._numbers[each.table])
        for each in self._effect.tables:
            self._bring(tables[name_of(each.table)], self._numbers[each.table])
        now = counters_of(self._connection)
        for name, (before, after) in self._effect.counters.items():
            if name in tables and now.get(name) == before:  # nobody has drawn another number since
                self._connection.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (name,))
                if after is not None:
                    self._connection.execute("INSERT INTO main.sqlite_sequence VALUES (?, ?)", (name, after))

    def _take(self, table: TableFacts, number: int) -> None:
        own, kept = _names(table)
        rows = f"SELECT {kept} FROM {WENT}.t{number}"
        if table.is_replaced:
            rows += f" WHERE rowid NOT IN (SELECT rowid FROM {CAME}.t{number})"
        self._connection.execute(f"DELETE FROM main.{quoted(table.name)} AS t WHERE {own} IN ({rows})")

    def _bring(self, table: TableFacts, number: int) -> None:
        """Insert rows. Where a rowid is nothing but a place, and somebody has it, a row gets another one."""
        file, names = f"main.{quoted(table.name)}", [quoted(table.stored[n][0]) for n in table.written]
        values, order = [f"a.c{n}" for n in table.written], ""
        if table.has_rowid and table.alias is None:
            names.append(table.rowid)
            taken = f"EXISTS (SELECT 1 FROM {file} t WHERE t.{table.rowid} = a.rowid)"
            values.append(f"iif({taken}, NULL, a.rowid)")
            order = f"ORDER BY {taken}"  # none of these gets the rowid of another one
        rows = f"SELECT {', '.join(values)} FROM {CAME}.t{number} a {order}"
        insert = "REPLACE" if table.is_replaced else "INSERT OR ABORT"  # whatever a constraint says ON CONFLICT
        self._connection.execute(f"{insert} INTO {file} ({', '.join(names)}) {rows}")


def _insert(connection: apsw.Connection, place: str, table: TableEffect, images: Sequence[Image]) -> None:
    width = max((len(values) for _, (_, values) in (*table.removed, *table.added)), default=1)
    connection.execute(f"CREATE TABLE {place} ({_numbered(range(width))})")
    for _, (rowid, values) in images:
        marks = ["CAST(? AS TEXT)" if isinstance(value, dict) and "t" in value else "?" for value in values]
        bound = [bytes.fromhex(*value.values()) if isinstance(value, dict) else value for value in values]
        columns = _numbered(range(len(values)))
        connection.execute(f"INSERT INTO {place} (rowid, {columns}) VALUES (?, {', '.join(marks)})", (rowid, *bound))


class Recorder:
    """Of one transaction on `tables`, as they are before it."""

    def __init__(
        self, connection: apsw.Connection, tables: Mapping[str, TableFacts], settings: DatabaseConnection
    ) -> None:
        self._connection, self._tables, self._settings = connection, tables, settings
        self._rows: dict[str, set[Any]] = defaultdict(set)
        """Which rows of which table changed, or may have."""
        self._most_rows = settings.max_rows * _PLACES_PER_ROW + 1000

    def __enter__(self) -> Recorder:
        rows, keys = self._rows, {name: table.key_places for name, table in self._tables.items() if not table.has_rowid}

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
        """True if far more has changed than one action may change, so that nobody need wait for the end."""
        return sum(map(len, self._rows.values())) > self._most_rows

    def effect(self, tables: Mapping[str, TableFacts], before: apsw.Connection) -> StoredEffect:
        """Return what became of the rows; `tables` as they are now, `before` sees the rows as they were.

        Rows of tables that were defined meanwhile are counted alone: no row tells whether a definition was committed.

        Raises InputError where it is more than may be kept, or rows cannot be named.
        """
        kept, counted = list[TableFacts](), list[tuple[str, str, int]]()
        for name, table in sorted(tables.items()):
            if name not in self._tables and not table.is_view:
                ((number,),) = self._connection.execute(f"SELECT count(*) FROM main.{quoted(name)}")
                counted += [(table.place, "create", number)] if number else []
            elif name in self._rows and self._tables[name].layout != table.layout:
                counted.append((table.place, "modify", len(self._rows[name])))
            elif name in self._rows and table.has_rowid and not table.rowid:
                raise InputError(
                    f"table {name}: has columns of all the names of the rowid, so that its rows cannot be found again"
                )
            elif name in self._rows:
                kept.append(table)
        if not kept:
            return StoredEffect(counted=tuple(counted))
        self._keep(before, WENT, kept)
        self._keep(self._connection, CAME, kept)
        effect = net(before, self._connection, kept)
        if (num_bytes := len(effect.went) + len(effect.came)) > (most := self._settings.max_bytes):
            raise InputError(f"changes rows of {num_bytes} bytes, more than {most} (max_bytes)")
        return replace(effect, counted=tuple(counted))

    def _keep(self, connection: apsw.Connection, place: str, tables: Sequence[TableFacts]) -> None:
        """Put the rows that changed, as a connection sees them, beside its file."""
        most = self._settings.max_bytes
        attach(connection, place, most_bytes=most)
        try:
            for number, table in enumerate(tables):
                copy(connection, f"{place}.t{number}", table, self._rows[table.name])
        except apsw.FullError:
            raise InputError(f"changes rows of more than {most} bytes (max_bytes)") from None
