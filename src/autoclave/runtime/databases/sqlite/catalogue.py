"""An SQLite file: who has it, whether what is open is still what others find, and what its tables are made of."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import apsw

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.sqlite.stored import Naming
from autoclave.runtime.databases.tables import BaseTable, Column, ForeignKey, place_of, quoted

_VIRTUAL, _STORED = 2, 3


def lease_of(name: str, path: Path) -> socket.socket:
    """Keep other sessions of ours from a file until the result is closed; raise InputError if one has it."""
    about = os.stat(path)
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lease.bind(f"\0autoclave/sqlite/{about.st_dev}/{about.st_ino}")
    except OSError:
        lease.close()
        raise InputError(f"database {name}: another session works on {path}; wait for it, or end it") from None
    return lease


class OpenFiles:
    """A file that a connection has open, and those that a write-ahead log keeps beside it.

    While it is open, no SQLite takes these away; they may come.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._known = path, _identities(path)

    def require_same(self, where: str) -> None:
        """Raise HostError if one was replaced under its name. Called in a transaction."""
        now = _identities(self._path)
        if self._known.items() - now.items():
            raise HostError(
                f"{where}: {self._path} or its log was replaced while the session had it open, so what is written "
                "would be lost. Fix: end the session, and open it again"
            )
        self._known = now


def _identities(path: Path) -> dict[str, tuple[int, int]]:
    """Device and inode of the files that there are."""
    found: dict[str, tuple[int, int]] = {}
    for name in (f"{path}", f"{path}-wal", f"{path}-shm"):
        try:
            about = os.stat(name)
            found[name] = about.st_dev, about.st_ino
        except FileNotFoundError:
            pass
    return found


def folded(name: str) -> str:
    """A name without its case, as SQLite takes names for the same: that of other letters than A to Z counts."""
    return name.encode().lower().decode()


@dataclass(frozen=True, kw_only=True)
class TableFacts(BaseTable):
    """One table. `columns`: name, type, whether not null, place in the key, kind, of each."""

    columns: tuple[tuple[str, str, bool, int, int], ...]
    has_rowid: bool
    has_key_index: bool
    """True if its primary key is an index beside the rows: so of each table with rowids, unless it is the rowid."""
    has_unique_index: bool
    """True if there is a unique index, also on some of its rows or on expressions."""

    @property
    def is_view(self) -> bool:
        return self.kind in ("view", "virtual")

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        names = [column[0] for column in self.stored]
        return tuple(map(names.index, self.key))

    @property
    def key_columns(self) -> list[str]:
        """Names of the columns of the primary key, as a statement has them."""
        return list(map(quoted, self.key))

    @cached_property
    def alias(self) -> int | None:
        """The place of the column that is the rowid itself; an `INTEGER PRIMARY KEY DESC` is none."""
        return self.key_places[0] if self.has_rowid and len(self.key) == 1 and not self.has_key_index else None

    @property
    def is_replaced(self) -> bool:
        """True if a row can stand in the way of none but the row with its rowid, so that REPLACE takes no other one."""
        return self.alias is not None and not self.has_unique_index

    @cached_property
    def stored(self) -> tuple[tuple[str, str, bool, int, int], ...]:
        return tuple(column for column in self.columns if column[4] != _VIRTUAL)

    @cached_property
    def written(self) -> tuple[int, ...]:
        """Places of columns that can be written: no generated ones."""
        return tuple(number for number, column in enumerate(self.stored) if column[4] != _STORED)

    @cached_property
    def rowid(self) -> str:
        """A name of the rowid that means nothing else; empty where columns have all of its names."""
        if self.alias is not None:
            return quoted(self.stored[self.alias][0])
        names = {column[0].lower() for column in self.columns}
        return next((name for name in ("rowid", "_rowid_", "oid") if name not in names), "")

    @property
    def naming(self) -> Naming:
        return Naming(self.has_rowid, self.alias is not None, self.key_places)

    @cached_property
    def layout(self) -> str:
        names = [each[0] for each in self.stored]
        return json.dumps([names, self.has_rowid, self.columns], separators=(",", ":"))

    def told_columns(self) -> Iterator[Column]:
        for name, kind, is_required, place, hidden in self.columns:
            can_be_null = not is_required and not (place and not self.has_rowid)
            yield Column(name, kind, can_be_null, hidden in (_VIRTUAL, _STORED))


def tables_of(connection: apsw.Connection) -> dict[str, TableFacts]:
    """The tables and views of the file, by name, those of SQLite's own left out; virtual tables count as views."""
    found: dict[str, TableFacts] = {}
    listed = list(connection.execute("SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'"))
    spelt = {folded(name): name for name, *_ in listed}
    for name, kind, without_rowid in listed:
        if not name.startswith("sqlite_"):
            columns, (has_key_index, has_unique_index) = _columns(connection, name), _has_indexes(connection, name)
            found[name] = TableFacts(
                schema="main",
                name=name,
                kind=kind,
                key=tuple(column[0] for column in sorted(columns, key=itemgetter(3)) if column[3]),
                unique=_unique(connection, name),
                foreign_keys=_foreign_keys(connection, name, spelt),
                columns=columns,
                has_rowid=not without_rowid,
                has_key_index=has_key_index,
                has_unique_index=has_unique_index,
            )
    return found


def _columns(connection: apsw.Connection, name: str) -> tuple[tuple[str, str, bool, int, int], ...]:
    query = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
    try:
        rows = list(connection.execute(query, (name,)))
    except apsw.SQLError:  # a view of what is not there any more
        return ()
    return tuple((column, kind, bool(required), place, hidden) for column, kind, required, place, hidden in rows)


def _has_indexes(connection: apsw.Connection, name: str) -> tuple[bool, bool]:
    """Return whether it has an index of its primary key, and a unique one."""
    query = """SELECT total(origin = 'pk') > 0, total("unique") > 0 FROM pragma_index_list(?)"""
    ((of_key, is_unique),) = connection.execute(query, (name,))
    return bool(of_key), bool(is_unique)


def _foreign_keys(connection: apsw.Connection, name: str, spelt: Mapping[str, str]) -> tuple[ForeignKey, ...]:
    query = 'SELECT id, "table", "from", "to", on_update, on_delete FROM pragma_foreign_key_list(?) ORDER BY id, seq'
    found: list[ForeignKey] = []
    for number, some in groupby(connection.execute(query, (name,)), itemgetter(0)):
        _, (target, *_), columns, targets, (on_update, *_), (on_delete, *_) = zip(*some, strict=True)
        found.append(
            ForeignKey(
                f"{number}",
                place_of("main", name),
                columns,
                place_of("main", spelt.get(folded(target), target)),
                tuple(each for each in targets if each is not None),
                carries=not {on_update, on_delete} <= {"NO ACTION", "RESTRICT"},
                deletes=on_delete == "CASCADE",
            )
        )
    return tuple(found)


def _unique(connection: apsw.Connection, name: str) -> tuple[tuple[str, ...], ...]:
    indexes = connection.execute(
        "SELECT name FROM pragma_index_list(?) WHERE \"unique\" AND origin <> 'pk' AND NOT partial", (name,)
    )
    columns = [
        tuple(column for (column,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,)))
        for (index,) in list(indexes)
    ]
    return tuple(sorted(each for each in columns if None not in each))


def definitions_of(connection: apsw.Connection) -> str:
    """Return a digest of all that is defined in a file."""
    rows = connection.execute(
        "SELECT type, name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"
    )
    own = [row for row in rows if not row[1].startswith("sqlite_")]
    return hashlib.sha256(repr(own).encode()).hexdigest()


def counters_of(connection: apsw.Connection) -> dict[str, int]:
    """Return where AUTOINCREMENT stands, by table."""
    try:
        return dict(connection.execute("SELECT name, seq FROM main.sqlite_sequence"))
    except apsw.SQLError:  # there is none
        return {}
