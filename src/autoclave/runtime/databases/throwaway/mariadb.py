"""A MariaDB server of our own; see `server`. Statements are run by `trial`, who may change rows of its schemas, no
more.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.mariadb.connection import do
from autoclave.runtime.databases.mariadb.values import quoted
from autoclave.runtime.databases.throwaway.server import DEADLINE_S, Throwaway, of_process

USER = "trial"
_RIGHTS = "SELECT, INSERT, UPDATE, DELETE, TRIGGER"
_OF_THE_SERVER = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_SETTINGS = (
    "--skip-networking",
    "--skip-log-bin",
    "--local-infile=OFF",
    "--performance-schema=OFF",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=OFF",
    "--innodb-fast-shutdown=2",
)
_SMALL = ("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-use-native-aio=OFF")
"""Without io_uring, too, for which not every user may lock enough memory."""


@dataclass(frozen=True)
class Programs:
    """Where the programs of a MariaDB are, and its version."""

    server: Path
    install: Path
    version: tuple[int, int]


class MariadbThrowaway:
    """One server. `folder`: all of it is in there, the socket too (`mysqld.sock`)."""

    def __init__(self, programs: Programs, case: int) -> None:
        self._used = set[str]()
        self._server = Throwaway(["mysql"])
        self.folder = self._server.folder
        options = ["--no-defaults", *_SMALL, f"--datadir={self.folder / 'data'}", f"--lower-case-table-names={case}"]
        self._server.prepare(programs.install, *options, "--skip-test-db", "--auth-root-authentication-method=normal")
        socket = [f"--socket={self.folder / 'mysqld.sock'}", f"--pid-file={self.folder / 'pid'}"]
        self._server.start(programs.server, *options, *socket, *_SETTINGS)
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(self._server.close)
            self.owner = self._first_connection()
            do(self.owner, f"CREATE USER {USER}@localhost")
            do(self.owner, f"GRANT PROCESS ON *.* TO {USER}@localhost")
            unless_ready.pop_all()

    def _first_connection(self) -> Any:
        import pymysql

        place, until = f"{self.folder / 'mysqld.sock'}", time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
                way.connect(place)
                if way.recv(1):  # it greets
                    return pymysql.connect(unix_socket=place, user="root", charset="utf8mb4", autocommit=True)
            if time.monotonic() > until or self._server.has_ended:
                raise HostError("the server to test reverse statements on did not start")
            time.sleep(0.02)

    @contextlib.contextmanager
    def schemas(self, names: Collection[str]) -> Any:
        """Have empty schemas, in which `trial` may change rows, while the block runs.

        Raises:
            InputError: they are the server's own, or are had already.
        """
        if taken := {name.lower() for name in names} & (_OF_THE_SERVER | self._used):
            raise InputError(f"undo: cannot be tested: schema {min(taken)} is in use where it would be made")
        self._used |= {name.lower() for name in names}
        try:
            for name in names:
                do(self.owner, f"CREATE DATABASE {quoted(name)}")
                do(self.owner, f"GRANT {_RIGHTS} ON {_literally(name)}.* TO {USER}@localhost")
            yield
        finally:
            for name in names:
                do(self.owner, f"REVOKE {_RIGHTS} ON {_literally(name)}.* FROM {USER}@localhost")
                do(self.owner, f"DROP DATABASE {quoted(name)}")
            self._used -= {name.lower() for name in names}

    def close(self) -> None:
        """End it, and leave nothing. May be called again."""
        with contextlib.suppress(Exception):
            self.owner.close()
        self._server.close()


def mariadb_throwaway(version: str, case: int) -> MariadbThrowaway:
    """The server of this process for databases of a version. `case`: as the variable `lower_case_table_names`.

    Raises:
        HostError: there is none, and it cannot be started.
    """
    programs = server_programs()
    if programs is None or programs.version < _numbers(version):
        raise HostError(
            f"undo: to test reverse statements, the programs of MariaDB {version.partition('-')[0]} or later are "
            "needed here (mariadbd, mariadb-install-db). Fix: install them, or leave the undo out, and rows are kept"
        )
    return of_process((programs, case), lambda: MariadbThrowaway(programs, case))


@functools.cache
def server_programs() -> Programs | None:
    """Those that are installed."""
    path = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
    found = [shutil.which(name) or shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db")]
    if found[0] is None or found[1] is None:
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run([found[0], "--version"], capture_output=True, text=True, timeout=10).stdout
        return Programs(Path(found[0]), Path(found[1]), _numbers(told.partition(" Ver ")[2]))
    return None


def _numbers(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _literally(schema: str) -> str:
    """The name of a schema where rights are given, in which `_` and `%` stand for others."""
    return quoted(re.sub(r"([\\_%])", r"\\\1", schema))
