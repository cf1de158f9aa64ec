"""Workspaces on this host: a sealed cell for each episode, from a stock of warm zygotes.

Theory of operation. There are four kinds of processes:

    this process        enforces the limits; gets answers on a socket, and what tools print on a pipe
      zygote            in a control group of its own where the host permits it; enters user, mount, net, ipc, uts and
        |               cgroup namespaces, assembles a read-only root
        +- process 1    one per episode: new process and mount namespaces, a tmpfs of limited size for all that can be
             |          written; takes calls, kills and reaps, carries out the end state when all others are dead
             +- tool    one per call, and the Python session; no capability, no_new_privs, seccomp; for root another id

What an episode shares with the next one of its zygote are namespaces that can hold nothing. Whatever tools meet in
files, such as a FIFO, harms only the policy. Process 1 ends with this process, and all others with it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoclave.config.levels import Level
from autoclave.core import EndState, SandboxFault, UsageError
from autoclave.core.outcome import LIMITS
from autoclave.sandbox import Limits
from autoclave.sandbox.bootstrap import require_current_parts
from autoclave.sandbox.cgroups import find_place, remove_stale_groups
from autoclave.sandbox.namespace.launch import new_identity
from autoclave.sandbox.namespace.root import base_interpreter
from autoclave.sandbox.zygote_process import ZygoteProcess
from autoclave.workspaces.command import fault_of, write_id_maps
from autoclave.workspaces.interface import Declared, ToolResult, WorkspaceLimits
from autoclave.workspaces.sealed import workspace_plan
from autoclave.workspaces.tools import TOOLS

_GUEST = "\n".join(str(Path(__file__).parent / "guest" / f"{name}.py") for name in ("command", "workspace"))
_ANSWER_S = 60.0  # for process 1, beyond the limits of a call
_USED = ("cpu_s", "wall_s", "output_bytes")
_NAMES = {limit.setting: str(name) for name, limit in LIMITS.items()}
_SIGNS = {os.strerror(number): limit.setting for limit in LIMITS.values() for number in limit.errnos}
_SIGNS |= {"Cannot fork": "processes", "MemoryError": "memory_mb"}


class LocalWorkspaces:
    """Makes workspaces in namespaces of this host. A start takes milliseconds while an earlier cell is idle.

    `packages` are top-level modules beyond the standard library that Python finds; `num_warm` cells are made ahead.
    """

    level: Level = "sealed"

    def __init__(
        self, limits: WorkspaceLimits | None = None, packages: tuple[str, ...] = (), num_warm: int = 1
    ) -> None:
        """Make the first cells. Raises HostError: a package is missing, or namespaces are refused. SandboxFault."""
        require_current_parts()
        self.limits, self._packages, self.is_closed = limits or WorkspaceLimits(), packages, False
        self.cells = set[_Zygote]()
        self.idle = [self._cell() for _ in range(num_warm)]
        self.threads = ThreadPoolExecutor(256, "workspace")  # one for each call that runs

    def start(self, files: Mapping[str, bytes], test_command: str = "") -> "Future[LocalWorkspace]":
        """Return a fresh workspace; see `Workspaces`. It fails with a UsageError if a file cannot be written."""
        return self.threads.submit(self._start, dict(files), test_command)

    def close(self) -> None:
        self.is_closed = True  # calls that run fail
        self.threads.shutdown()
        for cell in list(self.cells):
            cell.kill()

    def _start(self, files: dict[str, bytes], test_command: str) -> "LocalWorkspace":
        try:
            cell = self.idle.pop()
        except IndexError:
            cell = self._cell()
        workspace = LocalWorkspace(self, cell, test_command)
        placed = workspace.act("place", {"files": {path: b64encode(each).decode() for path, each in files.items()}})
        if placed.is_error:
            workspace.close()
            is_busy = placed.ended_by in ("cpu_time", "wall_time", "memory", "output")
            raise (SandboxFault if is_busy else UsageError)(f"files of a workspace: {placed.text}")
        workspace.begin()
        return workspace

    def _cell(self) -> "_Zygote":
        return _Zygote(self.limits, self._packages, self.cells)


class LocalWorkspace:
    """The cell of one episode."""

    def __init__(self, pool: LocalWorkspaces, zygote: "_Zygote", test_command: str) -> None:
        self.tools = [tool for tool in TOOLS if test_command or tool.name != "run_tests"]
        self._pool, self._limits, self._test_command = pool, pool.limits, test_command
        self._zygote: _Zygote | None = zygote
        self._used, self._cpu_s = (0.0, 0.0, 0.0), zygote.cpu_s()  # before the episode begins: of placing its files
        self._over: ToolResult | None = None
        self._is_closed, self._lock = False, threading.Lock()

    def begin(self) -> None:
        """Count from here."""
        self._used = 0.0, 0.0, 0.0

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[ToolResult]:
        return self._pool.threads.submit(self._call, tool, dict(arguments))

    def end(self, declared: Declared) -> Future[EndState]:
        return self._pool.threads.submit(self._end, declared)

    def close(self) -> None:
        self._is_closed = True  # a call that runs fails
        with self._lock:
            if self._zygote:
                self._zygote.kill()

    @contextlib.contextmanager
    def _held(self) -> "Iterator[_Zygote]":
        """Yield the cell, which a fault is the end of."""
        with self._lock:
            if self._zygote is None or self._is_closed:
                raise UsageError("a workspace takes no call after its end, or after a fault")
            try:
                yield self._zygote
            except BaseException:
                self._zygote.kill()
                self._zygote = None
                raise

    def _call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        if tool not in (known := [each.name for each in self.tools]):
            return ToolResult(f"error: there is no tool {tool!r}; must be one of {', '.join(known)}", is_error=True)
        if tool == "run_tests":
            tool, arguments = "shell", {"command": self._test_command}
        return self.act(tool, arguments)

    def _end(self, declared: Declared) -> EndState:
        with self._held() as zygote:
            if self._over and self._over.ended_by == "memory":
                return EndState({}, {"*": "the first process was killed at the limit of memory"})
            state = zygote.end(declared)
            self._zygote = None
            if zygote in self._pool.cells:
                self._pool.idle.append(zygote)
            return state

    def act(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Have the guest act, unless the episode is over."""
        with self._held() as zygote:
            if self._over:
                return self._over
            zygote.meter.begin_test()
            zygote.send(tool=tool, arguments=arguments)
            began, printed, ended, report, used = time.monotonic(), bytearray(), "", dict[str, Any](), self._used
            room, num_printed = self._limits.call_output_bytes, 0
            while not report:
                report, piece = zygote.wait()
                num_printed += len(piece)
                printed += piece[: room - len(printed)]
                used = zygote.cpu_s() - self._cpu_s, time.monotonic() - began, num_printed
                if not ended and (ended := self._exceeded(zygote, used)) and not report:
                    zygote.send(tool="kill")
                if self._is_closed or self._pool.is_closed or used[1] > self._limits.call_wall_s + _ANSWER_S:
                    raise SandboxFault("a workspace was closed in a call, or its first process does not obey")
            if "ended" in report:
                if not zygote.meter.is_memory_exceeded():
                    raise SandboxFault("the first process of a workspace was killed")
                ended = "memory_mb"
            self._used = self._used[0] + used[0], self._used[1] + used[1], self._used[2] + used[2]
            self._cpu_s += used[0]
            result = self._result(printed.decode(errors="replace"), report, ended)
            self._over = result if result.is_over else None
            return result

    def _exceeded(self, zygote: "_Zygote", used: tuple[float, ...]) -> str:
        """Return the setting of a limit that a call has exceeded."""
        for name, now, before in zip(_USED, used, self._used, strict=True):
            for setting, most in ((name, before + now), (f"call_{name}", now)):
                if most > getattr(self._limits, setting):
                    return setting
        return "memory_mb" if zygote.meter.is_memory_exceeded() else ""

    def _result(self, text: str, report: Mapping[str, Any], ended: str) -> ToolResult:
        status = report.get("status", -signal.SIGKILL)
        if status and not ended:  # a limit by which it failed, as far as its messages tell
            ended = "disk_mb" if report["is_full"] else next((_SIGNS[sign] for sign in _SIGNS if sign in text), "")
        is_over = "ended" in report or ended in _USED
        notes = {
            f"ended by its limit: {ended} = {getattr(self._limits, ended, 0)}": ended,
            f"exit code {status}" if status > 0 else f"ended by signal {-status}": status and not ended,
            "the Python session has ended; the next call starts a new one": report.get("is_session_lost"),
            "there are no further calls": is_over,
        }
        lines = "".join(f"[{note}]\n" for note, is_so in notes.items() if is_so)
        text += ("\n" if lines and text and not text.endswith("\n") else "") + lines
        return ToolResult(text, bool(status or ended), _NAMES.get(ended.removeprefix("call_"), ""), is_over)


class _Zygote:
    """A zygote, and the first process of the workspace that it serves. A failure of either is a SandboxFault."""

    def __init__(self, limits: WorkspaceLimits, packages: tuple[str, ...], alive: "set[_Zygote]") -> None:
        identity, place, self._alive = new_identity(), find_place(), alive
        plan = workspace_plan(limits, packages, identity.base + 1 if identity.kind == "range" else 0)
        if place.is_usable:
            remove_stale_groups(place)
        self._process = ZygoteProcess(base_interpreter(), place, module=_GUEST)
        alive.add(self)
        self._group, self._link, self._output = self._process.group, self._process.control, self._process.output
        self._link.settimeout(_ANSWER_S)
        self._answers = self._link.makefile("rb")
        self._poll, self.meter = select.poll(), self._process.meter(lambda: 0)
        os.set_blocking(self._output.fileno(), False)
        for each in (self._link, self._output):
            self._poll.register(each, select.POLLIN)
        memory_mb = limits.memory_mb + limits.disk_mb  # files are held in memory
        self._of_cell = Limits(0, 0, memory_mb, 0, limits.processes, limits.disk_mb, limits.open_files)
        kernel = {resource.RLIMIT_NOFILE: limits.open_files, resource.RLIMIT_NPROC: limits.processes + 2}
        kernel[resource.RLIMIT_FSIZE] = limits.disk_mb << 20  # files that are on no disk, too
        kernel |= {} if self._group else {resource.RLIMIT_AS: memory_mb << 20}
        try:
            self.send(**plan, limits=[*kernel.items(), (resource.RLIMIT_CORE, 0)])
            write_id_maps(int(self._receive()["ids"]))
            self.send()
            self._open()
        except BaseException:
            self.kill()
            raise

    def _open(self) -> None:
        """Have a first process made."""
        self.send()
        first = int(self._receive()["first"])
        self.meter = self._process.meter(lambda: first)
        self.meter.begin_cell(self._of_cell)
        self.send()
        self._receive()

    def end(self, declared: Declared) -> EndState:
        """End all processes, the first one last, have another made, and return what is carried out."""
        self.send(tool="end", arguments=asdict(declared))
        if "files" not in (answer := self._receive()):
            if not self.meter.is_memory_exceeded():
                raise SandboxFault("the first process of a workspace was killed when it carried files out")
            self.kill()
            return EndState({}, {"*": "the first process was killed at the limit of memory"})
        self._receive()
        with contextlib.suppress(BlockingIOError):
            while os.read(self._output.fileno(), 1 << 20):  # of processes that were kept
                pass
        self._open()
        return EndState({path: b64decode(each) for path, each in answer["files"].items()}, answer["left_out"])

    def send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # there will be no answer
            self._link.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> dict[str, Any]:
        try:
            answer = json.loads(self._answers.readline() or b"{}")
        except (OSError, ValueError) as error:
            raise SandboxFault(f"a workspace does not answer: {error}") from None
        has_failed = not answer or "fault" in answer
        if has_failed and self.meter.is_memory_exceeded():  # no fault: what a policy uses may be the zygote's end
            return {"ended": signal.SIGKILL}
        if has_failed:
            raise fault_of(answer or {"fault": self._process.last_words()})
        return answer

    def wait(self) -> tuple[dict[str, Any], bytes]:
        """Wait up to 50 ms until there is a report or something was printed; return what there is of both."""
        report = self._receive() if self._link.fileno() in dict(self._poll.poll(50)) else {}
        with contextlib.suppress(BlockingIOError):
            return report, os.read(self._output.fileno(), 1 << 20)  # all that a pipe holds
        return report, b""

    def cpu_s(self) -> float:
        """CPU seconds so far."""
        return self._group.cpu.seconds() if self._group else self.meter.preparing_cpu_s() + self.meter.usage().cpu_s

    def kill(self) -> None:
        """Kill all of its processes: the end of the zygote is that of the first process. May be called again."""
        self._alive.discard(self)
        self._answers.close()
        self._process.kill()
