"""The judge's end of a zygote: start it, give it its ids, have it make cells, and end it.

A zygote serves one cell at a time. Answers of zygotes and cells are untrusted JSON of known shape; a missing or
malformed answer is a `SandboxFault`.
"""

import json
import logging
import os
import socket
import sys
from dataclasses import asdict
from typing import Any, cast

from autoclave.core import HostError, SandboxFault
from autoclave.sandbox.exhaustion import fault_of, named_faults
from autoclave.sandbox.interface import Profile, Runner
from autoclave.sandbox.launch import Launched, Meter

_ANSWER_TIMEOUT_S = 60.0
_log = logging.getLogger(__name__)


class Zygote:
    """A warm interpreter for one profile."""

    def __init__(self, launched: Launched, profile: Profile) -> None:
        """Wait until it is confined and warm.

        Raises HostError: the packages or the preamble of the profile do not work in a cell. SandboxFault: it did not
        start; the message names the step.
        """
        self.profile = profile
        self._launched = launched
        self._runners: list[str] = []
        self._pid: int | None = None
        self._is_closing = False
        self._status: int | None = None
        self._control = launched.control
        self._control.settimeout(_ANSWER_TIMEOUT_S)
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        self._send(json.dumps(self._launched.plan | {"profile": asdict(self.profile)}).encode())
        answer = self._answer()
        if "ids" in answer:
            self._launched.map_ids()
            self._send(b"{}")
            answer = self._answer()
        if "unfit" in answer:
            raise HostError(
                f"profile {self.profile.name!r} does not start in a cell: {answer['unfit']}. "
                "Fix: name every package that its packages import in judge.profiles, correct its preamble, "
                "or use another profile."
            )
        if "ready" not in answer:
            raise SandboxFault(f"zygote answered {answer}")

    def open(self, runner: Runner, message: bytes) -> tuple[socket.socket, int]:
        """Have a cell made. Return the socket to its first process, and how many bytes of `message` are sent.

        Does not wait: the cell begins to work before its process number arrives here.

        Raises SandboxFault: the zygote has ended.
        """
        number = self._number_of(runner)
        with named_faults("no cell can be made"):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            ours.setblocking(False)
            num_sent = ours.send(message)
            with theirs:
                self._send(b"O" + bytes((number,)), theirs.fileno())
        except BaseException:
            ours.close()
            raise
        self._pid = None
        return ours, num_sent

    def meter(self) -> Meter:
        """Return the meter of the cell that is opened next.

        Raises SandboxFault: by methods of the meter, if the zygote could not make the cell.
        """
        return self._launched.meter(self.first_process)

    def close_cell(self) -> None:
        """Kill the open cell with all its processes. Does not wait; the next cell is made after that.

        Raises SandboxFault: the zygote has ended, and with it the cell.
        """
        self._send(b"C")
        self._is_closing = True

    def wait_status(self) -> int | None:
        """Return the wait status of the first process of the cell that was closed last.

        Raises SandboxFault: the zygote has ended, and with it the cell.
        """
        self.settle()
        return self._status

    def first_process(self) -> int:
        """Return the process number, inside of the zygote's namespace, of the first process of the last opened cell.

        Raises SandboxFault: the zygote could not make the cell, or has ended.
        """
        if self._pid is None:
            pid = self._answer_number()
            if pid <= 0:
                raise fault_of("no cell can be made", OSError(-pid, os.strerror(-pid)))
            self._pid = pid
        return self._pid

    def settle(self) -> None:
        """Wait until the cell that was closed last has ended. Raises SandboxFault: the zygote has ended."""
        if self._is_closing:
            self._is_closing = False
            self.first_process()
            self._status = self._answer_number()

    def kill(self) -> None:
        """End the zygote, its cell and all that runs there."""
        self._launched.kill()

    def _number_of(self, runner: Runner) -> int:
        """Return the zygote's number of `runner`, after sending it if need be."""
        if runner.name not in self._runners:
            is_warmed = runner.is_warmed and self.profile.is_warmed
            self._send(b"R%d" % is_warmed + runner.source.encode())
            if error := self._answer()["error"]:
                _log.warning("tests by runner %r are slower: its warm-up failed: %s", runner.name, error)
            self._runners.append(runner.name)
        return self._runners.index(runner.name)

    def _send(self, content: bytes, descriptor: int | None = None) -> None:
        try:
            if descriptor is None:
                self._control.send(content)
            else:
                socket.send_fds(self._control, [content], [descriptor])
        except OSError as error:
            raise SandboxFault(f"zygote does not listen ({error}): {self._launched.last_words()}") from None

    def _receive(self) -> bytes:
        try:
            content = self._control.recv(1 << 16)
        except OSError as error:
            raise SandboxFault(f"zygote does not answer ({error})") from None
        if not content:
            raise SandboxFault(f"zygote ended: {self._launched.last_words()}")
        return content

    def _answer(self) -> dict[str, Any]:
        content = self._receive()
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SandboxFault(f"zygote answers nonsense: {content[:200]!r}")
        return cast("dict[str, Any]", answer)

    def _answer_number(self) -> int:
        return int.from_bytes(self._receive(), sys.byteorder, signed=True)
