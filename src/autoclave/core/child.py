"""A Python process of our own, which ends with us, and the connection to it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

_START = (
    "import importlib, json, sys\n"
    "path, module, end, arguments = json.loads(sys.argv[1])\n"
    "sys.path[:] = path\n"
    "importlib.import_module(module).serve(end, *arguments)"
)


class ChildProcess:
    """A fresh interpreter that runs `serve(end, *arguments)` of a module; `end` is its descriptor of the connection.

    It leads a session: Ctrl-C in the terminal does not reach it, and what it starts is killed with it.
    """

    def __init__(self, module: str, *arguments: Any, environment: Mapping[str, str] = os.environ) -> None:
        here, there = socket.socketpair()
        self.connection = Connection(here.detach())
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", _START, json.dumps([sys.path, module, there.fileno(), arguments])],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what it prints is no output of the command
                pass_fds=[there.fileno()],
                env=environment,
                start_new_session=True,
            )
        self.id = self._process.pid
        self._is_gone = False
        self._killing = threading.Lock()

    def kill(self) -> None:
        """Signal it and all that it started. The connection stays open: its reader sees the end."""
        with self._killing:
            if not self._is_gone:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.id, signal.SIGKILL)  # the number is ours until the process is waited for

    def end(self) -> int:
        """Kill it if it runs, and wait until it is gone; its exit code, or the negative number of a signal."""
        self.kill()
        with self._killing:
            self._is_gone = True
            return self._process.wait()
