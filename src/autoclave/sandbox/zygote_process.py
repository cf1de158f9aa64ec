"""The process of a zygote on this host, in a control group of its own where this process may make one.

Limits hold in the kernel then, and nothing that a program does escapes the count. Elsewhere the judge samples.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable
from typing import IO, Any

from autoclave.sandbox.bootstrap import FOLDER, guest_command, guest_environment
from autoclave.sandbox.cgroups import Group, GroupMeter, Place
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.launch import Meter
from autoclave.sandbox.watch import ProcessMeter


class ZygoteProcess:
    """A zygote that waits for its plan, the socket to it, and its group."""

    def __init__(self, executable: str, place: Place, *, use_compiled: bool = True, module: str = "") -> None:
        """Start it, or another `module` with a stream. Raises SandboxFault, which names the missing resource."""
        with named_faults("a zygote cannot be started"):
            self.group = Group(place) if place.is_usable else None
            try:
                self._process, self.control, self.output = _start(executable, use_compiled, module)
            except BaseException:
                self._remove_group()
                raise
        try:
            if self.group:
                self.group.take_in(self.pid)  # before it makes a cell: it waits for its plan
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def meter(self, first_process: Callable[[], int]) -> Meter:
        """Return the meter of the cell with this first process."""
        return GroupMeter(self.group, first_process) if self.group else ProcessMeter(first_process)

    def last_words(self) -> str:
        """Return the last line that it printed, once it has ended."""
        if self.group and self.group.processes and (refusal := self.group.processes.refusal_of_host(0)):
            return refusal
        with contextlib.suppress(subprocess.TimeoutExpired, OSError, ValueError):
            self._process.wait(timeout=1)
            lines = (self.output.read(1 << 16) or b"").decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"exit status {self._process.returncode}"
        return "no explanation"

    def is_running(self) -> bool:
        """True if it has not ended yet."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        """Wait until it ends by itself, at most `timeout_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it and remove its group. May be called again."""
        self._process.kill()
        self._process.wait()
        self.output.close()
        self.control.close()
        self._remove_group()

    def _remove_group(self) -> None:
        if self.group:
            self.group.remove()


def _start(executable: str, use_compiled: bool, module: str) -> tuple[subprocess.Popen[bytes], socket.socket, IO[Any]]:
    """Return the process, its control socket, and the pipe with what it and its cells print."""
    with contextlib.ExitStack() as opened, contextlib.ExitStack() as kept:
        # Made here: where descriptors run out, Popen of Python 3.11 does not close those it made before.
        quiet = opened.enter_context(open(os.devnull, "r+b", buffering=0))
        reader, writer = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, writer)
        printed = kept.enter_context(open(reader, "rb", buffering=0))
        kind = socket.SOCK_STREAM if module else socket.SOCK_SEQPACKET
        control, theirs = (kept.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, kind))
        process = subprocess.Popen(
            guest_command(executable, module or "zygote", str(theirs.fileno()), use_compiled=use_compiled),
            stdin=quiet,
            stdout=writer,  # no file: Python remembers whether it can seek there, and tests write to pipes
            stderr=writer,
            env=guest_environment(),
            cwd=FOLDER,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        kept.pop_all()
    return process, control, printed
