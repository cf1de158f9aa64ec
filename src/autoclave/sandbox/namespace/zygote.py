"""The judge's end of a zygote: start it, give it its ids, have it make cells, and end it.

A zygote serves one cell at a time. Whatever it or a cell answers is parsed as JSON of known shape and never believed
beyond that; silence and nonsense are `SandboxFault`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from dataclasses import asdict
from typing import Any

from autoclave.core import SandboxFault
from autoclave.sandbox.interface import Profile, Runner
from autoclave.sandbox.namespace.bootstrap import FOLDER, guest_command
from autoclave.sandbox.namespace.identity import TEST_ID, Identity, write_id_maps
from autoclave.sandbox.namespace.root import RootPlan

STACK_BYTES = 96 << 20
"""Main stack of a test: 50 000 frames of C and Python together fit."""
_ANSWER_TIMEOUT_S = 60.0

_ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0"}
# One arena, or every thread of a program would reserve 64 MiB of its address space; and no work left for first calls.
_LOADER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "LD_BIND_NOW": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class Zygote:
    """A warm interpreter for one profile."""

    def __init__(self, plan: RootPlan, identity: Identity, profile: Profile) -> None:
        """Start it and wait until it is sealed and warm.

        Raises:
            SandboxFault: it did not come up; the message says at which step.
        """
        self.profile = profile
        self._runners: set[str] = set()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                guest_command(plan.executable, "zygote", str(theirs.fileno())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT | _LOADER_ENVIRONMENT,
                cwd=FOLDER,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self._start(plan, identity)
        except BaseException:
            self.kill()
            raise
        self._close_pipes()

    def _start(self, plan: RootPlan, identity: Identity) -> None:
        self._request(
            {
                "binds": plan.binds,
                "masks": plan.masks,
                "links": plan.links,
                "scratch": plan.scratch,
                "ids": identity.kind,
                "test_id": TEST_ID,
                "stack_bytes": STACK_BYTES,
                "profile": asdict(self.profile),
            }
        )
        answer = self._answer()
        if "ids" in answer:
            try:
                write_id_maps(self._process.pid, identity)
            except OSError as error:
                raise SandboxFault(f"cannot map user ids: {error}") from None
            self._request({})
            answer = self._answer()
        if "ready" not in answer:
            raise SandboxFault(f"zygote answered {answer}")

    def open(self, runner: Runner) -> tuple[int, socket.socket]:
        """Make a cell. Its first process, as the host numbers it, and the socket to it.

        Raises:
            SandboxFault: the zygote is gone or refuses.
        """
        request = {"do": "open", "runner": runner.name}
        if runner.name not in self._runners:
            request["runner_source"] = runner.source
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                self._request(request, theirs.fileno())
            pid = self._answer()["pid"]
        except (SandboxFault, KeyError):
            ours.close()
            raise SandboxFault(f"no cell could be made: {self._last_words()}") from None
        self._runners.add(runner.name)
        return pid, ours

    def close_cell(self) -> int:
        """Kill the open cell with all its processes. The wait status of its first process.

        Raises:
            SandboxFault: the zygote is gone, and with it the cell.
        """
        self._request({"do": "close"})
        status = self._answer().get("status")
        if not isinstance(status, int):
            raise SandboxFault("zygote lost its cell")
        return status

    def kill(self) -> None:
        """End the zygote; the kernel ends its cell and all that runs there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipes()
        self._control.close()

    def _request(self, request: dict[str, Any], descriptor: int | None = None) -> None:
        content = json.dumps(request).encode()
        try:
            if descriptor is None:
                self._control.send(content)
            else:
                socket.send_fds(self._control, [content], [descriptor])
        except OSError as error:
            raise SandboxFault(f"zygote does not listen ({error}): {self._last_words()}") from None

    def _answer(self) -> dict[str, Any]:
        try:
            content = self._control.recv(1 << 16)
        except OSError as error:
            raise SandboxFault(f"zygote does not answer ({error})") from None
        if not content:
            raise SandboxFault(f"zygote ended: {self._last_words()}")
        return json.loads(content)

    def _last_words(self) -> str:
        """The end of what it printed while starting, once it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError, ValueError):
            self._process.wait(timeout=1)
            if self._process.stderr:
                lines = self._process.stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
                return lines[-1] if lines else f"exit status {self._process.returncode}"
        return "no explanation"

    def _close_pipes(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
