"""A copy of an SQLite file in memory, for statements that are tried out while others go on with the file."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING

from autoclave.core import InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.sqlite.failures import translated

if TYPE_CHECKING:
    import apsw

_PAGES_AT_ONCE = 1000


@contextlib.contextmanager
def cloned(
    where: str, original: apsw.Connection, settings: DatabaseConnection
) -> Generator[tuple[apsw.Connection, apsw.Connection]]:
    """A copy with a transaction open on it, and a connection that sees it as it is before that.

    Raises:
        InputError: it would be too large.
    """
    import apsw

    ((size,),) = original.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    if size > settings.max_clone_bytes:
        raise InputError(
            f'{where}: mode "clone": {size} bytes would be copied into memory, more than max_clone_bytes '
            f'({settings.max_clone_bytes}). Fix: mode "images", or have the limit raised'
        )
    name = f"file:/autoclave-{secrets.token_hex(16)}?vfs=memdb"

    def connected() -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        return apsw.Connection(name, flags=flags, statementcachesize=0)

    with (
        translated(where),
        contextlib.closing(connected()) as clone,
        contextlib.closing(connected()) as before,
    ):
        with clone.backup("main", original, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_AT_ONCE)
        before.execute("BEGIN; SELECT 1 FROM sqlite_schema").fetchall()  # reads before the other one writes
        clone.execute("PRAGMA cache_spill = OFF")
        clone.execute(f"PRAGMA foreign_keys = {int(settings.enforces_foreign_keys)}")
        clone.execute("BEGIN IMMEDIATE")
        yield clone, before
