"""What servers of our own have in common: each is in a temporary folder, on a socket in it, for one process.

Theory of operation. A shell starts the server and reads from a pipe of which this process holds the other end. When it
is closed, by `close` or because this process died in whatever way, the shell ends the server and removes the folder.
A server listens on no address. When this process is root, the server is run by somebody who may do nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from autoclave.core import HostError

DEADLINE_S = 60.0
_SHELL = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server; rm -rf -- "$FOLDER"'


class Throwaway:
    """One server and its folder. Ends with the process at the latest."""

    def __init__(self, accounts: Sequence[str]) -> None:
        """`accounts`: who may run it where this process is root, the first that there is."""
        self._shell: subprocess.Popen[Any] | None = None
        who = _unprivileged(accounts)
        self.folder = Path(tempfile.mkdtemp(prefix="autoclave-trial-"))
        atexit.register(self.close)
        self._how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        self._how["env"] = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "FOLDER": f"{self.folder}"}
        if who is not None:
            os.chown(self.folder, who.pw_uid, who.pw_gid)
            self._how |= {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": list[int]()}

    def prepare(self, *words: str | Path) -> None:
        """Run a program to its end, as the server will be.

        Raises:
            HostError: it fails; nothing is left.
        """
        try:
            subprocess.run([*map(str, words)], check=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL, **self._how)
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise _not_started(words[0], error) from None

    def start(self, *words: str | Path) -> None:
        """Start the server.

        Raises:
            HostError: it cannot be started; nothing is left.
        """
        shell = ["/bin/sh", "-c", _SHELL, "sh", *map(str, words)]
        try:
            self._shell = subprocess.Popen(shell, stdin=subprocess.PIPE, start_new_session=True, **self._how)
        except OSError as error:
            self.close()
            raise _not_started(words[0], error) from None

    @property
    def has_ended(self) -> bool:
        return self._shell is None or self._shell.poll() is not None

    def close(self) -> None:
        """End it, and leave nothing. May be called again."""
        atexit.unregister(self.close)
        if self._shell is not None:
            assert self._shell.stdin is not None
            with contextlib.suppress(OSError):
                self._shell.stdin.close()
            self._shell.wait(DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)  # who runs the server may not be who may do that


class Closable(Protocol):
    """What can be ended."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)
_lock = threading.Lock()
_servers: dict[tuple[int, Hashable], Closable] = {}
"""By process: one that was forked must not speak to the server of its parent."""


def of_process(kind: Hashable, start: Callable[[], S]) -> S:
    """The server of a kind that this process has; it is started when it is asked for first."""
    mine = os.getpid(), kind
    with _lock:
        if mine not in _servers:
            _servers[mine] = start()
        return cast("S", _servers[mine])


def end_throwaways() -> None:
    """End the servers of this process now. One is started again when it is needed."""
    with _lock:
        for mine in [each for each in _servers if each[0] == os.getpid()]:
            _servers.pop(mine).close()


def _not_started(program: str | Path, error: Exception) -> HostError:
    told = f"no server could be started to test reverse statements on ({type(error).__name__})"
    return HostError(f"{program}: {told}")


def _unprivileged(accounts: Sequence[str]) -> pwd.struct_passwd | None:
    """Who runs the server when root must not."""
    if os.geteuid() != 0:
        return None
    for name in (*accounts, "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise HostError("undo: root may not run the server that reverse statements are tested on, and there is no nobody")
