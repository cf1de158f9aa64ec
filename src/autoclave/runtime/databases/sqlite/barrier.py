"""The authorizer: SQLite asks it while statements are compiled and run, so no spelling gets past it.

The authoriser is told of each table, column and function that a statement compiles to, also inside of triggers and
views. What it sees is at the same time what the statement reads and writes, and so what it depends on: tables, or rows
by their rowids.
"""

import contextlib
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

import apsw

from autoclave.core import InputError
from autoclave.runtime.databases.effects import NUM_KEYS, TableEffect
from autoclave.runtime.databases.operations import Sql, named_rows
from autoclave.runtime.databases.sqlite.catalogue import TableFacts, folded
from autoclave.runtime.databases.tables import name_of, place_of

VOLATILE = frozenset([
    "random", "randomblob", "current_time", "current_date", "current_timestamp", "date", "time", "datetime",
    "julianday", "strftime", "unixepoch", "timediff", "last_insert_rowid", "changes", "total_changes",
])  # fmt: skip
"""Functions that may give something else the next time."""
_FORBIDDEN = {"load_extension", "edit", "readfile", "writefile", "fts3_tokenizer", "zipfile", "sqlar_compress"}
_WRITING = {9: "delete", 18: "create", 23: "modify"}
_CREATING = {2: "table", 1: "index", 8: "view"}
_DROPPING = {11: "table", 10: "index", 17: "view"}
_ALTER, _READ, _SELECT, _FUNCTION, _PRAGMA, _REINDEX, _RECURSIVE = 26, 20, 21, 31, 19, 27, 33
_ALLOWED = {*_WRITING, *_CREATING, *_DROPPING, _ALTER, _READ, _SELECT, _FUNCTION, _RECURSIVE}
_LET_THROUGH = (
    "INSERT, REPLACE, UPDATE and DELETE are let through, and definitions of tables, indexes and views in mode "
    '"transaction"; nothing temporary, and no virtual tables'
)
_OK, _DENY = 0, 1
_NOTHING = re.compile(r"(?:[ \t\n\v\f\r;]|--[^\n]*+|/\*(?>.*?(?:\*/|\Z)))*+", re.DOTALL)
"""Text that may follow a statement and is none."""
_SCHEMA = frozenset({"sqlite_master", "sqlite_schema"})


@dataclass(slots=True)
class Seen:
    """The subjects of a statement: verbs by table, tables read, objects by kind and name."""

    writes: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    reads: set[str] = field(default_factory=set[str])
    """Names of tables, some as they were spelt."""
    reads_of_keys: set[str] = field(default_factory=set[str])
    """Those of them that are looked at for foreign keys alone."""
    reads_within: set[str] = field(default_factory=set[str])
    """By triggers and views."""
    columns_of_own: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Of SQLite's own tables, those that are read."""
    created: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    changed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    functions: set[str] = field(default_factory=set[str])
    refused: str = ""

    @property
    def is_deterministic(self) -> bool:
        return not self.functions & VOLATILE

    @property
    def reads_own(self) -> set[str]:
        """SQLite's own tables that it reads, but for what a definition itself looks at there.

        A statement that alters or drops holds no query; one that creates looks for a place in the schema.
        """
        if self.changed:
            return set()
        found = {(name, column) for name, column in self.columns_of_own if not (self.created and column == "ROWID")}
        return {"sqlite_schema" if name in _SCHEMA else name for name, _ in found}


class Barrier:
    """SQLite's authoriser, for one statement."""

    def __init__(self) -> None:
        self.seen = Seen()

    def __call__(self, operation: int, one: str | None, two: str | None, schema: str | None, within: str | None) -> int:
        seen, name = self.seen, one or ""
        if operation == _PRAGMA and name == "data_version":  # virtual tables ask for it
            return _OK
        if operation == _REINDEX and any(kind == "index" for kind, _ in seen.created):  # a new one is filled that way
            return _OK
        if reason := self._refusal(operation, two or "", schema):
            seen.refused = seen.refused or reason
            return _DENY
        is_own = name.startswith("sqlite_") or schema != "main"
        if operation in _WRITING and not is_own:
            seen.writes.setdefault(name, set()).add(_WRITING[operation])
        elif operation == _READ and schema in ("main", None):  # none where it counts rows and reads no column
            if name.lower().startswith("sqlite_"):
                seen.columns_of_own.add((name.lower(), two or ""))
            else:
                (seen.reads_within if within else seen.reads).add(name)
        elif operation == _FUNCTION:
            seen.functions.add((two or "").lower())
        elif operation in _CREATING and not is_own:
            seen.created.add((_CREATING[operation], name))
        elif operation in _DROPPING:
            seen.changed.add((_DROPPING[operation], name))
        elif operation == _ALTER:
            seen.changed.add(("table", two or ""))
        return _OK

    def _refusal(self, operation: int, two: str, schema: str | None) -> str:
        is_altering = any(kind == "table" for kind, _ in self.seen.changed)  # which looks at temporary objects, too
        if operation not in _ALLOWED or (schema == "temp" and operation in _WRITING and not is_altering):
            return _LET_THROUGH
        if operation == _FUNCTION and two.lower() in _FORBIDDEN:
            return f"the function {two.lower()} reaches beyond the database"
        return ""


@contextlib.contextmanager
def guarded(connection: "apsw.Connection", text: str, number: int, *, runs: bool = True) -> Generator[Seen]:
    """Compile, and if `runs` run, one action; raise InputError if the text is none, is refused, or is several."""
    if "\0" in text:
        raise InputError(f"statement {number}: has a character that is zero, at which SQLite would end it")
    barrier, count = Barrier(), 0

    def trace(cursor: "apsw.Cursor", sql: str, values: object) -> bool:
        nonlocal count
        if count and _NOTHING.fullmatch(sql):
            return True
        count += 1
        if count > 1 or not _NOTHING.fullmatch(text, len(sql)):
            raise InputError(f"statement {number}: holds several; give each as a text of its own")
        if cursor.is_explain or not (barrier.seen.writes or barrier.seen.created or barrier.seen.changed):
            raise InputError(f"statement {number}: changes nothing that can be taken back, so it is no action")
        return runs

    connection.authorizer, connection.exec_trace = barrier, trace
    try:
        yield barrier.seen
    except apsw.ExecTraceAbort:
        return
    except (apsw.AuthError, apsw.SQLError):
        if not barrier.seen.refused:
            raise
        raise InputError(f"statement {number}: is refused: {barrier.seen.refused}") from None
    finally:
        connection.authorizer = connection.exec_trace = None
    if count == 0:
        raise InputError(f"statement {number}: is empty")


@contextlib.contextmanager
def without_foreign_keys(connection: "apsw.Connection") -> Iterator[None]:
    """Leave foreign keys out of what is compiled in the block. The pragma would not do so in a transaction."""
    was_on = connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, was_on)


_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def reads_of(operation: Sql, number: int, seen: Seen, tables: Mapping[str, TableFacts]) -> set[str]:
    """Return what a statement depends on: rows that it names by their keys, else tables."""
    within = _known(seen.reads_within, tables) | seen.reads_own
    found = within | _known(seen.reads, tables) - {name for _, name in seen.created}
    named: set[str] = set()
    for name in seen.writes.keys() - within:
        table = tables.get(name)
        key = (table.stored[table.alias][0],) if table is not None and table.alias is not None else ()
        rows = named_rows(operation.statements[number], operation.values_of(number), "sqlite", key)
        if rows is None or not all(map(_NUMBER.fullmatch, rows)):
            return {place_of("main", each) for each in found}
        named |= {f"{place_of('main', name)}/{row}" for row in rows}
    others = found - (seen.reads_of_keys | seen.writes.keys()) | within
    return {place_of("main", each) for each in others} | named


def _known(names: set[str], tables: Mapping[str, TableFacts]) -> set[str]:
    """Names of tables as they were defined; others, such as `json_each`, as they are."""
    defined = {folded(name): name for name in tables}
    return {defined.get(folded(name), name) for name in names}


def parents_of(effect: TableEffect, tables: Mapping[str, TableFacts]) -> Iterator[str]:
    """Rows that those that came refer to, where their key is the rowid; else tables, as other keys may be respelt."""
    table = tables[name_of(effect.table)]
    places = {folded(column[0]): number for number, column in enumerate(table.stored)}
    for reference in table.foreign_keys:
        parent = tables.get(name_of(reference.parent))
        own = [places[folded(column)] for column in reference.columns]
        key = [] if parent is None or parent.alias is None else [folded(parent.stored[parent.alias][0])]
        target = [folded(column) for column in reference.target] or key
        if not key or target != key or len(effect.added) > NUM_KEYS:
            yield reference.parent
            continue
        rows = [row for _, (_, values) in effect.added if None not in (row := [values[place] for place in own])]
        if any(type(row[0]) is not int for row in rows):
            yield reference.parent
            continue
        yield from (f"{reference.parent}/{row[0]}" for row in rows)
