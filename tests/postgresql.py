"""A real PostgreSQL server, for tests of all packages that talk to one."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

DEADLINE_S = 180.0


class Postgres:
    """A real PostgreSQL server, of this run of the tests."""

    def __init__(self, programs: ModuleType, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._server = programs.PostgresServer(folder, cleanup_mode=None)
        self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)
        self._num_made = 0

    def new_database(self) -> str:
        """The address of an empty database."""
        self._num_made += 1
        return self._server.get_uri(database=self.make_database(f"made{self._num_made}"))

    def make_database(self, name: str) -> str:
        """An empty database of a name; the name."""
        self._admin.execute(f"CREATE DATABASE {name}")
        return name

    def place(self, database: str) -> dict[str, Any]:
        """Where a database is, in the words of libpq."""
        found = psycopg.conninfo.conninfo_to_dict(self._server.get_uri(database=database))
        return {name: found[name] for name in ("host", "port", "dbname") if name in found}

    def settle(self, **settings: object) -> None:
        """Have the server run with such settings."""
        for name, value in settings.items():
            self._admin.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.stop(mode="fast")
        self.start()

    def execute(self, statement: str, *values: object) -> None:
        """Do something as its owner."""
        self._admin.execute(statement, values)

    def stop(self, *, mode: str = "immediate") -> None:
        """Break off all connections, and take no new ones."""
        self._admin.close()
        self._control("-m", mode, "stop")

    def start(self) -> None:
        """As before."""
        sockets = self._server.get_postmaster_info().socket_dir
        words = ("-l", str(self._server.log), "-o", '-h ""', "-o", f"-k {sockets}")
        self._control("-t", f"{DEADLINE_S:.0f}", *words, "start")  # its own way of starting gives up after ten seconds
        self._server.ensure_postgres_running()
        self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Takes connections and never responds."""
        server = self._server.get_postmaster_info().process
        processes = [server, *server.children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def close(self) -> None:
        """Leave nothing."""
        self.stop()
        atexit.unregister(self._server._cleanup)

    def _control(self, *words: str) -> None:
        self._programs.pg_ctl(["-w", *words], pgdata=self._folder, user=self._server.system_user)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with warnings.catch_warnings(action="ignore"):  # it wants a folder of the user's session, which containers lack
        programs = pytest.importorskip("pgserver")
    with tempfile.TemporaryDirectory(prefix="autoclave-postgres-") as folder:
        data = Path(folder) / "data"
        data.mkdir()
        opened = Postgres(programs, data)
        yield opened
        opened.close()
