"""A PostgreSQL server of our own; see `throwaway`. Statements are run by `trial`, who owns the tables there and may do
nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoclave.core import HostError
from autoclave.runtime.databases.reversal.throwaway import DEADLINE_S, Throwaway, of_process

ROLE = "trial"
_OWNER = "autoclave"
_SETTINGS = (
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=16MB",
    "max_connections=20",
    "autovacuum=off",
    "jit=off",
    "wal_level=minimal",
    "max_wal_senders=0",
)


@dataclass(frozen=True)
class Programs:
    """Where the programs of a PostgreSQL are, and its major version."""

    folder: Path
    version: int


class PostgresThrowaway:
    """One server."""

    def __init__(self, programs: Programs) -> None:
        self._num_made = 0
        self._server = Throwaway(["postgres"])
        self.folder, data = self._server.folder, self._server.folder / "data"
        self._server.prepare(
            programs.folder / "initdb", "-D", data, "-U", _OWNER, "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        self._server.start(programs.folder / "postgres", "-D", data, "-k", self.folder, *settings)
        self._admin = self._first_connection()
        self._admin.execute(f"CREATE ROLE {ROLE} LOGIN")

    def _first_connection(self) -> Any:
        import psycopg

        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.connect("postgres", _OWNER)
            except psycopg.OperationalError:
                if time.monotonic() > until or self._server.has_ended:
                    self._server.close()
                    raise HostError("the server to test reverse statements on did not start") from None
                time.sleep(0.02)

    def connect(self, database: str, user: str = ROLE) -> Any:
        """A connection that commits each statement."""
        import psycopg

        return psycopg.connect(host=f"{self.folder}", dbname=database, user=user, autocommit=True)

    def make_database(self) -> str:
        """An empty database that `trial` owns; its name."""
        self._num_made += 1
        name = f"ground{self._num_made}"
        self._admin.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE template0")
        return name

    def owner_of(self, database: str) -> Any:
        """A connection to a database that may do everything."""
        return self.connect(database, _OWNER)

    def drop_database(self, name: str) -> None:
        import psycopg

        with contextlib.suppress(psycopg.Error):
            self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        """End it, and leave nothing. May be called again."""
        self._admin.close()
        self._server.close()


def postgres_throwaway(version: int) -> tuple[PostgresThrowaway, Programs]:
    """The server of this process for databases of a major version, and the programs that belong to it.

    Raises:
        HostError: there is none, and it cannot be started.
    """
    found = sorted((each for each in server_programs() if each.version >= version), key=lambda each: each.version)
    if not found:
        raise HostError(
            f"undo: to test reverse statements, the programs of PostgreSQL {version} or later are needed here (initdb, "
            "postgres, pg_dump). Mend: install them, or leave the undo out, and rows are kept"
        )
    return of_process(found[0], lambda: PostgresThrowaway(found[0])), found[0]


def server_programs() -> Iterator[Programs]:
    """Those that are installed, by a system or by a package of Python."""
    folders = [Path(found).resolve().parent for name in ("initdb",) if (found := shutil.which(name))]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if (spec := find_spec("pgserver")) and spec.origin:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in dict.fromkeys(folders):
        if all((folder / name).is_file() for name in ("initdb", "postgres", "pg_dump")) and (found := _version(folder)):
            yield Programs(folder, found)


@functools.cache
def _version(folder: Path) -> int:
    try:
        told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(r"\) (\d+)", told)
    return int(number[1]) if number else 0
