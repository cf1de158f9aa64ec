"""The file of a database on its file system: who has it, and whether what is open is still what others find."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from autoclave.core import HostError, InputError


def lease_of(name: str, path: Path) -> socket.socket:
    """Keep other sessions of ours from a file until what is returned is closed.

    Raises:
        InputError: another one has it.
    """
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
        """Look whether they are what others find by their names. Asked in a transaction.

        Raises:
            HostError: one was replaced.
        """
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
        with contextlib.suppress(FileNotFoundError):
            about = os.stat(name)
            found[name] = about.st_dev, about.st_ino
    return found
