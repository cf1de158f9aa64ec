"""Rows of an SQLite file, copied into kept databases, compared with them, and written back; all of it by SQLite."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autoclave.runtime.databases.effects import Effect, Image, TableEffect
from autoclave.runtime.databases.sqlite.catalogue import TableMaker, counters_of, quoted
from autoclave.runtime.databases.sqlite.stored import StoredEffect, StoredRows, StoredTable, images_of
from autoclave.runtime.databases.tables import name_of

if TYPE_CHECKING:
    import apsw

WENT, CAME = "autoclave_went", "autoclave_came"
"""Names of kept databases beside a file. No statement that is proposed is compiled while they are there."""
_PAGE_BYTES = 1024


# --- Conditions ------------------------------------------------------------------------------------------------------


def _all(terms: Sequence[str]) -> str:
    """All of them; balanced, since SQLite limits the depth of an expression."""
    if len(terms) < 2:
        return "".join(terms) or "1"
    half = len(terms) // 2
    return f"({_all(terms[:half])} AND {_all(terms[half:])})"


def _same_row(table: TableMaker, columns: Sequence[str]) -> str:
    """The values of a row `a` in a kept database, and those of another row, are the same to the last bit.

    1 and 1.0 are not, nor are 0.0 and -0.0, nor texts that are spelt alike: the collation and affinity of `a` count.
    """
    kinds = [column[1].upper() for column in table.stored]
    return _all([_same(f"a.c{n}", *each) for n, each in enumerate(zip(columns, kinds, strict=True))])


def _same(one: str, other: str, kind: str) -> str:
    """Two values of a column of a type are the same; what the type keeps out of the column is not looked at."""
    if "INT" not in kind and any(each in kind for each in ("CHAR", "CLOB", "TEXT")):  # numbers become texts
        return f"{one} IS {other}"
    same_type = f"typeof({one}) = typeof({other})"
    is_numeric = kind.startswith(("NUMERIC", "DECIMAL")) and not any(each in kind for each in ("REAL", "FLOA", "DOUB"))
    if "INT" in kind or is_numeric:  # a number without a fraction becomes an integer, but for the least one
        return f"({one} IS {other} AND ({one} IS NOT -9223372036854775808 OR {same_type}))"
    return f"({one} IS {other} AND {same_type} AND ({one} IS NOT 0.0 OR atan2({one}, -1) IS atan2({other}, -1)))"


def _is_there(table: TableMaker) -> str:
    """A condition that a row `t` of the file is where a kept row `a` was: by its rowid, else by its key."""
    return f"t.{table.rowid} = a.rowid" if table.has_rowid else _has_key_of(table)


def _has_key_of(table: TableMaker) -> str:
    """A condition that a row `t` of the file has the key of a kept row `a`; none where a key has NULL in it."""
    return _all([f"t.{name} = a.c{n}" for n, name in zip(table.key, table.key_columns, strict=True)])


def _is_named_as(table: TableMaker) -> str:
    """A condition that a row `t` of the file has the name of a kept row `a`: its key, else its rowid."""
    if not table.has_rowid or not table.key:
        return _is_there(table)
    has_no_key = " OR ".join(f"a.c{n} IS NULL" for n in table.key)
    return f"({_has_key_of(table)} OR ({has_no_key}) AND {_is_there(table)})"


def _names(table: TableMaker) -> tuple[str, str]:
    """What a row `t` of the file is named by, and what a kept row is."""
    if table.has_rowid:
        return f"t.{table.rowid}", "rowid"
    return f"({', '.join(f't.{each}' for each in table.key_columns)})", _numbered(table.key)


# --- Keeping ---------------------------------------------------------------------------------------------------------


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


class Copy(NamedTuple):
    """Rows to be kept: of a table (as it is where it has most columns), by their rowids or keys; None: all of them."""

    shape: TableMaker
    rows: Collection[Any] | None

    @property
    def name(self) -> str:
        return self.shape.name

    def run(self, connection: apsw.Connection, place: str, table: TableMaker | None, most_rows: int) -> None:
        """Copy them, if the table is there, to a new table."""
        import apsw

        unique = "" if self.shape.has_rowid else f", UNIQUE ({_numbered(self.shape.key)})"
        connection.execute(f"CREATE TABLE {place} ({_numbered(range(len(self.shape.stored)))}{unique})")
        if table is None:
            return
        columns = [f"t.{quoted(each[0])}" for each in table.stored]
        target, source = _numbered(range(len(columns))), f"main.{quoted(table.name)} t"
        if table.has_rowid:
            target, columns = f"rowid, {target}", [f"t.{table.rowid}", *columns]
        copy = f"INSERT OR IGNORE INTO {place} ({target}) SELECT {', '.join(columns)} FROM"
        if self.rows is None:
            connection.execute(f"{copy} {source} LIMIT ?", (most_rows,))
        elif table.has_rowid:
            numbers = apsw.carray(array("q", sorted(self.rows)))
            connection.execute(f"{copy} carray(?) n CROSS JOIN {source} ON t.{table.rowid} = n.value", (numbers,))
        else:
            key = _all([f"t.{name} = ?" for name in table.key_columns])
            connection.executemany(f"{copy} {source} WHERE {key}", sorted(self.rows, key=repr))


def net(before: apsw.Connection, after: apsw.Connection, tables: Sequence[TableMaker]) -> StoredEffect:
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
    before: apsw.Connection, after: apsw.Connection, number: int, table: TableMaker
) -> tuple[int, int, int, int]:
    """How many rows did not change, which are taken out, and how many are left that went, that came, and that did both.

    `after` has the rows that went, too, as a copy.
    """
    w, c, by_key = f"{WENT}.t{number}", f"{CAME}.t{number}", [f"t.c{n} = a.c{n}" for n in table.key]
    same = _same_row(table, [f"t.c{n}" for n in range(len(table.stored))])
    on = "t.rowid = a.rowid" if table.has_rowid else _all(by_key)
    unchanged = list(after.execute(f"SELECT a.rowid, t.rowid FROM {w} a CROSS JOIN {c} t ON {on} WHERE {same}"))
    before.executemany(f"DELETE FROM {w} WHERE rowid = ?", [(row,) for row, _ in unchanged])
    after.executemany(f"DELETE FROM {c} WHERE rowid = ?", [(row,) for _, row in unchanged])
    same_key = [each.replace(" = ", " IS ") for each in by_key]
    ((num_modified,),) = after.execute(f"SELECT count(*) FROM {c} t JOIN {w} a ON {on} AND {_all(same_key)}")
    ((num_went,),), ((num_came,),) = (
        connection.execute(f"SELECT count(*) FROM {rows}") for connection, rows in ((before, w), (after, c))
    )
    return len(unchanged), num_went, num_came, num_modified


# --- Comparing and writing -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def loaded(connection: apsw.Connection, effect: Effect) -> Iterator[Rows]:
    """The rows of a file and of an effect beside it, in one transaction at most that is within the block."""
    rows = Rows(connection, effect)
    try:
        rows.load()
        yield rows
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        detach(connection)


class Rows:
    """Of one file and of one effect. `tables`: those of the file as they are in the transaction that looks at them."""

    def __init__(self, connection: apsw.Connection, effect: Effect) -> None:
        self._connection, self._effect = connection, effect
        self._numbers = {each.table: number for number, each in enumerate(effect.tables)}

    def load(self) -> None:
        """Put the rows of the effect beside the file."""
        effect = self._effect
        if isinstance(effect, StoredEffect):
            for name, content in ((WENT, effect.went), (CAME, effect.came)) if effect.tables else ():
                attach(self._connection, name, content)
            self._numbers = {
                each.table: each.removed.number for each in effect.tables if isinstance(each.removed, StoredRows)
            }
            return
        for name in (WENT, CAME):
            attach(self._connection, name)
            for number, each in enumerate(effect.tables):
                _insert(self._connection, f"{name}.t{number}", each, each.removed if name == WENT else each.added)

    def conflicting(
        self, tables: Mapping[str, TableMaker], *, by_rowids: bool = False, forwards: bool = True
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
            changed = f"NOT EXISTS (SELECT 1 FROM {file} t WHERE {_is_there(table)} AND {same})"
            found |= self._now(table, gone, f"SELECT a.rowid FROM {gone} a WHERE {changed}")
            if (by_rowids or table.key) and ("create" if forwards else "delete") in each.counts:
                on = _is_named_as(table) if by_rowids else _has_key_of(table)
                in_the_way = f"FROM {coming} a CROSS JOIN {file} t ON {on}"
                query = f"SELECT a.rowid {in_the_way} WHERE {own} NOT IN (SELECT {kept} FROM {gone})"
                found |= self._now(table, coming, query)
        return found

    def _now(self, table: TableMaker, kept: str, query: str) -> dict[tuple[str, str], Image | None]:
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

    def write(self, tables: Mapping[str, TableMaker]) -> None:
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

    def _take(self, table: TableMaker, number: int) -> None:
        own, kept = _names(table)
        rows = f"SELECT {kept} FROM {WENT}.t{number}"
        if table.is_replaced:
            rows += f" WHERE rowid NOT IN (SELECT rowid FROM {CAME}.t{number})"
        self._connection.execute(f"DELETE FROM main.{quoted(table.name)} AS t WHERE {own} IN ({rows})")

    def _bring(self, table: TableMaker, number: int) -> None:
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
    """Keep rows of which there are images."""
    width = max((len(values) for _, (_, values) in (*table.removed, *table.added)), default=1)
    connection.execute(f"CREATE TABLE {place} ({_numbered(range(width))})")
    for _, (rowid, values) in images:
        marks = ["CAST(? AS TEXT)" if isinstance(value, dict) and "t" in value else "?" for value in values]
        bound = [bytes.fromhex(*value.values()) if isinstance(value, dict) else value for value in values]
        columns = _numbered(range(len(values)))
        connection.execute(f"INSERT INTO {place} (rowid, {columns}) VALUES (?, {', '.join(marks)})", (rowid, *bound))
