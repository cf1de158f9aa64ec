"""A PostgreSQL server of our own; see `server`. Statements are run by `trial`, who owns the tables there and may do
nothing else; or, on a copy of a database, by roles that are called as they are there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoclave.core import HostError
from autoclave.runtime.databases.postgresql.catalogue import quoted
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.databases.throwaway.server import DEADLINE_S, Throwaway, of_process

ROLE = "trial"
_OWNER = "autoclave-throwaway"
_DUMP_S = 600.0
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

    def make_roles(self, names: Iterable[str]) -> None:
        """Have roles of these names, which may log in and do nothing."""
        known = {name for (name,) in self._admin.execute("SELECT rolname FROM pg_catalog.pg_roles").fetchall()}
        for name in sorted(set(names) - known):
            self._admin.execute(f"CREATE ROLE {quoted(name)} LOGIN")

    def owner_of(self, database: str) -> Any:
        """A connection to a database that may do everything."""
        return self.connect(database, _OWNER)

    def options_of(self, database: str) -> tuple[str, ...]:
        """How programs of PostgreSQL reach a database, to do everything there."""
        return (f"--host={self.folder}", f"--username={_OWNER}", f"--dbname={database}")

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
            "postgres, pg_dump). Fix: install them, or leave the undo out, and rows are kept"
        )
    return of_process(found[0], lambda: PostgresThrowaway(found[0])), found[0]


def dumped(
    where: str, programs: Programs, settings: DatabaseConnection, schemas: tuple[str, ...], password: str, *how: str
) -> bytes:
    """What `pg_dump` tells of some schemas of a database, without what concerns others. `how`: more of its options.

    Raises:
        HostError: it does not tell it.
    """
    words = [f"{programs.folder / 'pg_dump'}", "--no-publications", "--no-subscriptions", "--no-security-labels"]
    words += ["--no-tablespaces", "--no-comments", "--no-password", *how]
    words += [f"--schema={quoted(each)}" for each in schemas]
    given = {"--host": settings.host, "--port": settings.port or "", "--username": settings.user}
    words += [f"{name}={value}" for name, value in given.items() if value]
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    try:
        done = subprocess.run(
            [*words, f"--dbname={settings.dbname}"], env=environment, capture_output=True, timeout=_DUMP_S, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(f"{where}: pg_dump does not tell what is in it ({type(error).__name__})") from None
    if done.returncode:
        raise HostError(f"{where}: pg_dump does not tell what is in it (it exited with {done.returncode})")
    return done.stdout


def server_programs() -> Iterator[Programs]:
    """Those that are installed, by a system or by a package of Python."""
    folders = [Path(found).resolve().parent for name in ("initdb",) if (found := shutil.which(name))]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if (spec := find_spec("pgserver")) and spec.origin:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    for folder in dict.fromkeys(folders):
        if all((folder / name).is_file() for name in ("initdb", "postgres", "pg_dump", "pg_restore")) and (
            found := _version(folder)
        ):
            yield Programs(folder, found)


@functools.cache
def _version(folder: Path) -> int:
    try:
        told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(r"\) (\d+)", told)
    return int(number[1]) if number else 0
