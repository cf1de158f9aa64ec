"""A real MariaDB server, for tests that talk to one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

DEADLINE_S = 60.0
_PROGRAMS = ("mariadb-install-db", "mariadbd")


_PLAIN = [
    "--no-defaults",
    "--innodb-use-native-aio=OFF",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-buffer-pool-size-max=32M",
]
"""Small, without io_uring, whose locked memory several servers of a machine may not get, and with a buffer pool of one
size: by default the server reserves addresses for 8 TB and shrinks the pool when the machine runs short of memory."""


def _options(folder: Path) -> list[str]:
    """What the server is started with, always; as root only where it is told to."""
    return [*_PLAIN, f"--datadir={folder / 'data'}", *(["--user=root"] if os.geteuid() == 0 else [])]


def install(folder: Path) -> None:
    """Make the tables of the server's own."""
    words = ["mariadb-install-db", *_options(folder), "--skip-test-db", "--auth-root-authentication-method=normal"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, f"{ended.returncode}: {ended.stdout[-2000:]} {ended.stderr[-2000:]}"


class Mariadb:
    """A real MariaDB server, of this run of the tests, which listens on a socket in its folder alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have it run; what was prepared before is there again."""
        words = [
            "mariadbd",
            *_options(self.folder),
            f"--socket={self.folder / 'mysqld.sock'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--tmpdir={self.folder}",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-flush-method=nosync",
            "--innodb-fast-shutdown=2",
            "--performance-schema=OFF",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        until = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
                way.connect(f"{self.folder / 'mysqld.sock'}")
                if way.recv(1):  # it greets
                    return
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < until, "the server does not come up"
            time.sleep(0.02)

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    def stop(self) -> None:
        """Kill it, as a loss of power would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def execute(self, *statements: str, user: str = "root", database: str = "mysql") -> list[Any]:
        """The rows of the last of some statements."""
        return self.all(*statements, user=user, database=database)[-1]

    def all(self, *statements: str, user: str = "root", database: str = "mysql") -> list[list[Any]]:
        """The rows of each of some statements."""
        assert self._process is not None
        assert (code := self._process.poll()) is None, f"the server ended with {code}: {self._log()}"
        place = {"unix_socket": f"{self.folder / 'mysqld.sock'}", "user": user, "database": database}
        with (
            contextlib.closing(pymysql.connect(**place, autocommit=True, charset="utf8mb4")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET time_zone = '+00:00', innodb_lock_wait_timeout = 1, lock_wait_timeout = 2")
            found: list[list[Any]] = []
            for each in statements:
                cursor.execute(each)
                found.append(list(cursor.fetchall()))
            return found


@pytest.fixture(scope="session")
def mariadb_folder() -> Iterator[Path]:
    """A folder in which a server can run, again and again."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed (make setup-system)")
    with tempfile.TemporaryDirectory(prefix="autoclave-mariadb-", ignore_cleanup_errors=True) as folder:
        install(Path(folder))
        yield Path(folder)


@pytest.fixture(scope="module")
def mariadb(mariadb_folder: Path) -> Iterator[Mariadb]:
    server = Mariadb(mariadb_folder)
    server.start()
    yield server
    server.stop()
