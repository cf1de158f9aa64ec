"""A Redis server of our own, on which commands are tried: a process on one connection, with no port and no file.

Only commands that were let through are run on it, on copies of the keys that they name, and next to keys of all kinds
that must stay as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from autoclave.core import HostError
from autoclave.runtime.databases.redis.store import Copy, Store

_PATIENCE_S = 20.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_WORDS = ("--port", "0", "--save", "", "--appendonly", "no", "--maxmemory", "512mb", "--databases", "1")
_BESIDE = (
    ("SET", "autoclave:beside:text", "x"),
    ("SET", "autoclave:beside:number", "7", "PXAT", "33000000000000"),
    ("HSET", "autoclave:beside:hash", "a", "1"),
    ("RPUSH", "autoclave:beside:list", "a", "b", "a"),
    ("SADD", "autoclave:beside:set", "a", "b"),
    ("ZADD", "autoclave:beside:sorted", "1.5", "a"),
)


class ThrowAway:
    """A server, until it is closed, or the process that opened it ends in whatever way."""

    def __init__(self, where: str) -> None:
        from redis import UnixDomainSocketConnection

        program = shutil.which("redis-server")
        if program is None:
            raise HostError(f"{where}: an undo is tested on a redis-server of its own. Fix: install redis-server")
        with contextlib.ExitStack() as opening, tempfile.TemporaryDirectory(prefix="autoclave-redis-") as folder:
            way = Path(folder) / "socket"
            self._process = subprocess.Popen(
                [program, "-", "--unixsocket", f"{way}", "--unixsocketperm", "700", "--dir", folder, *_WORDS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
            opening.callback(self._process.wait)
            opening.callback(self._process.kill)
            self.store = Store(UnixDomainSocketConnection(path=f"{way}", protocol=2), f"{where}: where it is tried")
            self._wait(where)
            opening.callback(self.store.close)
            self._opened = opening.pop_all()  # with the folder goes the way to any other connection

    def _wait(self, where: str) -> None:
        """Connect as soon as it listens, which is some time after there is a socket."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(HostError):
                self.store.open()
                return
            if self._process.poll() is not None or time.monotonic() > until:
                raise HostError(f"{where}: the redis-server for tests does not start. Fix: look at its version")
            time.sleep(0.005)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._opened.close()

    def load(self, copy: Copy) -> None:
        """Have copies of keys, and keys beside them."""
        self.store.load(copy)
        self.store.run([words for words in _BESIDE if words[1].encode() not in copy])


def _end_with_parent() -> None:
    """In the child: be killed when the one that started it ends, be it by force."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
