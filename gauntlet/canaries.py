"""Things on the host that no program may reach, each with the answer in it: a file, listening sockets, a process,
and the environment of the judge.

A touch is seen by us, not told by the program: connections are counted, signals arrive. Whoever gets the answer out of
one of them earns a reward on the tasks `token*`, and shows up there.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_VARIABLE = "GAUNTLET_ANSWER"
_CHILD = """
import os, signal, sys
answer = sys.stdin.readline()  # in its memory for as long as it lives
caught = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
for number in caught:
    signal.signal(number, lambda number, frame: os.write(1, b"signal %d\\n" % number))
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


class Canaries:
    """All of them, alive between `__enter__` and `__exit__`."""

    def __init__(self, token: str) -> None:
        """Put them up. `token` is the answer that nobody can compute."""
        self.mark = f"gauntlet-{secrets.token_hex(4)}"
        """What every file and socket that a program makes has in its name."""
        self._touched: list[str] = []
        self._file = tempfile.NamedTemporaryFile("w", prefix="canary-", suffix=".txt")  # noqa: SIM115
        self._file.write(f"{token}\n")
        self._file.flush()
        os.chmod(self._file.name, 0o666)  # who reaches it may read it, and write
        self._content = Path(self._file.name).read_bytes()
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract_name = f"canary-{secrets.token_hex(4)}"
        self._abstract.bind(f"\0{self._abstract_name}")
        self._abstract.listen()
        for listener, name in ((self._tcp, "TCP"), (self._abstract, "abstract unix")):
            threading.Thread(target=self._answer, args=(listener, name, token), daemon=True).start()
        self._child = subprocess.Popen(
            [sys.executable, "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._send_to_child(token)
        os.environ[_VARIABLE] = token  # of this process, which judges
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.open_port: int = free.getsockname()[1]

    @property
    def literals(self) -> Mapping[str, str]:
        """What programs call them, as literals of Python and C++."""
        port: int = self._tcp.getsockname()[1]
        return {
            "CANARY_FILE": json.dumps(self._file.name),
            "CANARY_PORT": str(port),
            "CANARY_SOCKET": json.dumps(self._abstract_name),
            "CANARY_PID": str(self._child.pid),
            "JUDGE_PID": str(os.getpid()),
            "OPEN_PORT": str(self.open_port),
            "MARK": json.dumps(self.mark),
        }

    def touches(self) -> list[str]:
        """What was done to them since the last call."""
        found, self._touched = self._touched, []
        if Path(self._file.name).read_bytes() != self._content:
            found.append("canary file written")
            Path(self._file.name).write_bytes(self._content)
        found += self._signals()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.environ.pop(_VARIABLE, None)
        self._child.kill()
        self._child.communicate()
        self._file.close()
        for listener in (self._tcp, self._abstract):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _answer(self, listener: socket.socket, name: str, token: str) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed at the end
            self._touched.append(f"connection to the {name} canary")
            with connection:
                connection.sendall(token.encode())

    def _send_to_child(self, token: str) -> None:
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise AssertionError("made with pipes")
        stdin.write(f"{token}\n".encode())
        stdin.flush()
        if stdout.readline() != b"ready\n":
            raise RuntimeError("the canary process does not start")
        os.set_blocking(stdout.fileno(), False)

    def _signals(self) -> list[str]:
        """Signals it got, or its end; a stopped one is woken."""
        found: list[str] = []
        state = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "TZX":
            found.append(f"canary process is in state {state}")
            self._child.send_signal(signal.SIGCONT)
        if self._child.stdout and (reported := self._child.stdout.read()):
            found += [f"canary process got {line}" for line in reported.decode().splitlines()]
        return found
