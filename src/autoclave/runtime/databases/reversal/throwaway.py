"""A PostgreSQL server of our own, for generated rows only: in a temporary folder, on a socket in it, for one process.

Theory of operation. A shell starts the server and reads from a pipe of which this process holds the other end. When it
is closed, by `close` or because this process died in whatever way, the shell ends the server and removes the folder.
The server listens on no address. Statements are run by `trial`, who owns the tables there and may do nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoclave.core import HostError

ROLE = "trial"
_OWNER = "autoclave"
_DEADLINE_S = 60.0
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
_SHELL = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server; rm -rf -- "$FOLDER"'
_lock = threading.Lock()


@dataclass(frozen=True)
class Programs:
    """Where the programs of a PostgreSQL are, and its major version."""

    folder: Path
    version: int


class Throwaway:
    """One server. Ends with the process at the latest. `folder`: all of it is in there."""

    def __init__(self, programs: Programs) -> None:
        self._num_made = 0
        self.folder = Path(tempfile.mkdtemp(prefix="autoclave-trial-"))
        who = _unprivileged()
        if who is not None:
            os.chown(self.folder, who.pw_uid, who.pw_gid)
        run: dict[str, Any] = (
            {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": list[int]()}
        )
        run |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        run["env"] = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "FOLDER": f"{self.folder}"}
        data = self.folder / "data"
        made = [programs.folder / "initdb", "-D", data, "-U", _OWNER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        server = [programs.folder / "postgres", "-D", data, "-k", self.folder]
        try:
            subprocess.run([*map(str, made)], check=True, timeout=_DEADLINE_S, **run)
            words = [*map(str, server), *(word for setting in _SETTINGS for word in ("-c", setting))]
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "sh", *words], stdin=subprocess.PIPE, start_new_session=True, **run
            )
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise HostError(
                f"{programs.folder}: no server could be started to test reverse statements on ({type(error).__name__})"
            ) from None
        atexit.register(self.close)
        self._admin = self._first_connection()
        self._admin.execute(f"CREATE ROLE {ROLE} LOGIN")

    def _first_connection(self) -> Any:
        import psycopg

        until = time.monotonic() + _DEADLINE_S
        while True:
            try:
                return self.connect("postgres", _OWNER)
            except psycopg.OperationalError:
                if time.monotonic() > until or self._shell.poll() is not None:
                    self.close()
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
        atexit.unregister(self.close)
        with contextlib.suppress(AttributeError):
            self._admin.close()
        assert self._shell.stdin is not None
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        self._shell.wait(_DEADLINE_S)


_servers: dict[tuple[int, Programs], Throwaway] = {}
"""By process: one that was forked must not speak to the server of its parent."""


def throwaway(version: int) -> tuple[Throwaway, Programs]:
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
    mine = os.getpid(), found[0]
    with _lock:
        if mine not in _servers:
            _servers[mine] = Throwaway(found[0])
        return _servers[mine], found[0]


def end_throwaways() -> None:
    """End the servers of this process now. One is started again when it is needed."""
    with _lock:
        for mine in [each for each in _servers if each[0] == os.getpid()]:
            _servers.pop(mine).close()


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


def _unprivileged() -> pwd.struct_passwd | None:
    """Who runs the server when root must not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise HostError("undo: root may not run the server that reverse statements are tested on, and there is no nobody")
