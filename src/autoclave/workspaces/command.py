"""Run a command over a folder, sealed, so that its changes can be inspected before they reach the folder.

Theory of operation. There are four processes:

    this process    reads the output, enforces the limits, serves the listening socket if there is one
      keeper        exec'ed as a bare interpreter; unshares user, mount, net, ipc, uts, cgroup and (for its child)
        |           process namespaces; waits
        +- first    process 1 of the namespace: builds a read-only root of the parts of the host that a command needs,
             |      mounts an overlay in place of the folder, pivots, starts the command, kills and reaps its processes
             +- command   own session, resource limits, no_new_privs, seccomp; no capability, or, for root, those that
                          files need, which apply to the file systems of the namespace only

The folder of the host is the lower layer of the overlay and is never written to; the upper folder, also on the
host, holds the changes of the command. The root has /usr and its kin, the interpreter, a small /etc, devices without
state, /tmp, /dev/shm and a home of limited size, and the process part of /proc. The network is empty; on request one
socket listens on its loopback interface, made inside and passed to this process: the only way out of the cell.

Ids. An ordinary user keeps the own id. For root all ids stay as they are, so that files get the owners that they would
get on the host. The command could do no more in the folder anyway: everything else is mounted read-only or belongs to
the cell, /proc has no kernel settings, devices cannot be made, and no process, socket, key or handle of the host can be
named.

A command that shares the network of the host keeps its network namespace, and gets its names and resolvers. It can
then reach what listens on the host, also on loopback addresses; sockets in the file system stay refused.

Termination. At a limit, this process kills the first process by its descriptor, and the kernel kills everything below
it. If this process dies, the kernel kills the keeper, and with it the first process. Mounts end with the namespace.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autoclave.core import IsolationError, Outcome, SandboxFault
from autoclave.core.outcome import Ended
from autoclave.sandbox.bootstrap import FOLDER, guest_command, guest_environment, require_current_parts
from autoclave.sandbox.cgroups import Group, find_place, remove_stale_groups
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.namespace.root import base_interpreter
from autoclave.workspaces.sealed import ENVIRONMENT, CommandLimits, SealedCommand, root_of
from autoclave.workspaces.sizes import size_of
from autoclave.workspaces.streams import CommandStreams

_GUEST = Path(__file__).parent / "guest" / "command.py"
_FILE_CAPABILITIES = (0, 1, 3, 4)
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID: root needs them to act on files of other users."""
_POLL_S = 0.05
_START_TIMEOUT_S = 60.0
_NOT_FOUND = 127


def run_command(
    command: SealedCommand,
    limits: CommandLimits | None = None,
    serve: Callable[[socket.socket], contextlib.AbstractContextManager[Any]] | None = None,
    on_output: Callable[[str, bytes], object] | None = None,
    *,
    is_left: bool = False,
) -> Outcome:
    """Run a command to its end, or to a limit. No process of it is left when this returns.

    `serve` gets the listening socket of `command.listens` and returns a context manager for the run. `on_output` gets
    "stdout" or "stderr" with each piece that is printed there, as it comes, up to the limit. `is_left`: processes of
    the command have ended on return, but its cell, without any, is removed by a thread. `Outcome.detail` names parts
    that the host refused to the cell, and the limit of open files if the command fails by it.

    Raises:
        HostError: a compiled part of this checkout is older than its source.
        IsolationError: the host refuses namespaces.
        SandboxFault: the cell could not be made.
    """
    require_current_parts()
    limits = limits or CommandLimits()
    with contextlib.ExitStack() as opened:
        cell = _spares.pop() if _spares else _Cell(command, limits)
        opened.callback(cell.close)
        if not cell.is_like(command, limits):
            cell = _Cell(command, limits)
            opened.callback(cell.close)
        listener = cell.start(command, limits)
        if listener is not None and serve is not None:
            opened.enter_context(listener)
            opened.enter_context(serve(listener))
        cell.go()
        outcome = cell.watch(on_output)
        if is_left:
            threading.Thread(target=opened.pop_all().close, daemon=True).start()
        return outcome


def overlay_problem(folder: Path) -> str:
    """Return why commands cannot have an overlay with its upper folder in `folder`; empty if they can. Runs one.

    Raises:
        IsolationError: the host refuses namespaces.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".trial-") as trial:
        for name in ("tree", "upper", "work"):
            (Path(trial) / name).mkdir()
        try:
            outcome = run_command(SealedCommand(("sh", "-c", "echo > probe"), Path(trial, "tree"), Path(trial)))
        except SandboxFault as error:
            return str(error)
        return "" if Path(trial, "upper", "probe").exists() else outcome.stderr.decode(errors="replace").strip()


class _Cell:
    """One command from start to end. It is made without what belongs to the command alone."""

    def __init__(self, command: SealedCommand, limits: CommandLimits) -> None:
        self._command, self._limits = command, limits
        self._root = root_of(command, limits)
        self._group = None
        if (place := find_place()).is_usable:
            remove_stale_groups(place)
            self._group = Group(place)
        self._first = -1
        with named_faults("a command cannot be started"):
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            self._answers = self._link.makefile("rb")
            with theirs:
                self._process = subprocess.Popen(
                    guest_command(base_interpreter(), str(_GUEST), str(theirs.fileno())),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=guest_environment(),
                    cwd=FOLDER,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        self._link.settimeout(_START_TIMEOUT_S)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        if self._group:
            self._group.take_in(self._process.pid)
        self._send(self._root)
        write_id_maps(int(self._receive()["ids"]))
        self._send({})
        self._first = os.pidfd_open(int(self._receive()["first"]))
        self._send({})

    def is_like(self, command: SealedCommand, limits: CommandLimits) -> bool:
        """Return whether it can serve a command, on this host as it is now."""
        return self._root == root_of(command, limits)

    def start(self, command: SealedCommand, limits: CommandLimits) -> socket.socket | None:
        """Complete the cell; return its listening socket, if the command has one."""
        self._command, self._limits = command, limits
        if self._group:
            self._group.memory.limit(self._group.memory.now() + (self._limits.memory_mb << 20))
            if self._group.processes:
                self._group.processes.limit(self._limits.processes + 2)
        self._send(self._plan())
        if not self._command.listens:
            return None
        content, descriptors, _, _ = socket.recv_fds(self._link, 3, 1)
        if not descriptors:
            raise fault_of(self._receive(content))
        return socket.socket(fileno=descriptors[0])

    def go(self) -> None:
        """Start the command, if the listening socket has delayed it."""
        if self._command.listens:
            self._send({})

    def watch(self, on_output: Callable[[str, bytes], object] | None) -> Outcome:
        """Serve its streams, enforce the limits, and return the outcome."""
        began = time.monotonic()
        streams = CommandStreams(self._process, self._command.stdin, self._limits.output_bytes, on_output)
        ended: Ended | None = None
        exceeded = self._exceeded_limits(began)
        self._link.settimeout(None)
        streams.watch(self._link)
        while not streams.is_reported:
            streams.transfer(_POLL_S)
            if ended is None and (ended := next(exceeded) or (Ended.OUTPUT if streams.is_over_limit else None)):
                self._kill()
        report = self._report()
        streams.drain()
        return self._outcome(report, ended, streams, time.monotonic() - began)

    def close(self) -> None:
        """Kill remaining processes and free all descriptors."""
        self._kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        self._answers.close()
        self._link.close()
        if self._first >= 0:
            os.close(self._first)
            self._first = -1
        if self._group:
            self._group.remove()

    def _plan(self) -> dict[str, Any]:
        command, tree = self._command, str(self._command.tree.resolve())
        return {
            "place": tree,
            "method": command.method,
            "lower": tree,
            "lower_inode": command.tree_inode,
            "layers": str(command.layers.resolve()),
            "hidden": list(command.hidden),
            "listens": command.listens,
            "port": command.port,
            "argv": list(command.argv),
            "environment": {**ENVIRONMENT, **command.environment},
            "capabilities": list(_FILE_CAPABILITIES) if os.geteuid() == 0 else [],
            "limits": list(self._resource_limits()),
        }

    def _resource_limits(self) -> Iterator[tuple[int, int]]:
        limits = self._limits
        yield resource.RLIMIT_CORE, 0
        yield resource.RLIMIT_CPU, int(limits.cpu_s) + 1
        yield resource.RLIMIT_FSIZE, limits.disk_mb << 20
        yield resource.RLIMIT_NOFILE, limits.open_files
        if os.geteuid():  # the kernel does not count those of root
            yield resource.RLIMIT_NPROC, limits.processes
        if not self._group:
            yield resource.RLIMIT_AS, limits.memory_mb << 20

    def _exceeded_limits(self, began: float) -> Iterator[Ended | None]:
        """Yield, each time, the limit that is exceeded now, or None."""
        limits, pause_s, next_scan = self._limits, 4 * _POLL_S, began
        while True:
            now = time.monotonic()
            if now - began > limits.wall_s:
                yield Ended.WALL_TIME
            elif self._group and self._group.cpu.seconds() > limits.cpu_s:
                yield Ended.CPU_TIME
            elif now >= next_scan:
                next_scan = now + pause_s
                yield Ended.DISK if self._is_over_disk() else None
                pause_s = max(pause_s, 10 * (time.monotonic() - now))  # scans take a tenth of the time
            else:
                yield None

    def _outcome(self, report: dict[str, Any], ended: Ended | None, streams: CommandStreams, wall_s: float) -> Outcome:
        memory = self._group.memory if self._group else None
        if ended is None and memory and memory.num_kills() > 0 and memory.num_hits() > 0:
            ended = Ended.MEMORY
        if ended is None and self._is_over_disk():
            ended = Ended.DISK
        status = report.get("status")
        code = os.waitstatus_to_exitcode(status) if isinstance(status, int) else None
        if ended is None and code == -signal.SIGXCPU:
            ended = Ended.CPU_TIME
        stderr = streams.printed["stderr"]
        if refused := str(report.get("refused", "")):
            code, stderr = _NOT_FOUND, f"{refused}\n".encode()
        natural = Ended.EXITED if code is not None and code >= 0 else Ended.SIGNALLED
        cpu_s = self._group.cpu.seconds() if self._group else float(report.get("cpu_s", 0.0))
        peak = memory.peak() if memory else None
        return Outcome(
            ended=ended or natural,
            exit_code=code if ended is None and natural is Ended.EXITED else None,
            signal=-code if ended is None and code is not None and code < 0 else None,
            stdout=bytes(streams.printed["stdout"]),
            stderr=bytes(stderr),
            stdout_cut=streams.cut["stdout"],
            stderr_cut=streams.cut["stderr"],
            cpu_s=cpu_s,
            wall_s=wall_s,
            memory_mb=peak / 2**20 if peak else float(report.get("peak_mb", 0.0)),
            detail="; ".join([*report.get("notes", ()), *self._open_files_note(code, bytes(stderr))]),
        )

    def _open_files_note(self, code: int | None, stderr: bytes) -> list[str]:
        """Return the limit of open files for a command that fails with EMFILE, as far as its messages tell."""
        is_reached = bool(code) and os.strerror(errno.EMFILE).encode() in stderr
        return [f"limit of open files reached: open_files = {self._limits.open_files}"] if is_reached else []

    def _is_over_disk(self) -> bool:
        upper, most = self._command.layers / "upper", self._limits.disk_mb << 20
        return self._command.method == "overlay" and size_of(upper) > most

    def _report(self) -> dict[str, Any]:
        """Return the final report of the first process; empty if it was killed."""
        try:
            return self._receive()
        except (EOFError, ConnectionError):
            return {}

    def _kill(self) -> None:
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            self._process.wait()  # the keeper waits for all
        elif self._process.poll() is None:
            self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._link.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise fault_of(self._report()) from None

    def _receive(self, content: bytes = b"") -> dict[str, Any]:
        """Receive a message, or the rest of one that begins with `content`."""
        try:
            if not (content := content + self._answers.readline()):
                raise EOFError
            answer = json.loads(content)
        except (OSError, ValueError) as error:
            raise SandboxFault(f"the cell of a command does not answer ({error})") from None
        if "fault" in answer:
            raise fault_of(answer)
        return answer


def fault_of(answer: dict[str, Any]) -> SandboxFault | IsolationError:
    """Return what the answer of a guest says has failed, or that it has ended."""
    reason = str(answer.get("fault", "it ended without a message"))
    if answer.get("errno") in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS) and "unshare" in reason:
        return IsolationError(f"this host refuses namespaces ({reason}). Fix: `autoclave doctor` names it")
    return SandboxFault(f"the cell of a command cannot be made: {reason}")


_spares: list[_Cell] = []


def warm_cell(command: SealedCommand, limits: CommandLimits) -> None:
    """Make the cell of the next command ahead, up to its overlay. It ends with the calling thread.

    It is for one command with the same network, limits of scratch space and parts of the host; if one of those or a
    mount of the host has changed, it is not used. Raises as `run_command`.
    """
    require_current_parts()
    _spares.append(_Cell(command, limits))


def write_id_maps(pid: int) -> None:
    """Map ids of the user namespace of a process to themselves: all of them for root, else the own."""
    try:
        if os.geteuid():
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            ids = f"{own} {own} 1\n" if os.geteuid() else Path(f"/proc/self/{name}").read_text()
            ranges = [line.split() for line in ids.splitlines()]
            Path(f"/proc/{pid}/{name}").write_text("".join(f"{first} {first} {size}\n" for first, _, size in ranges))
    except OSError as error:
        raise SandboxFault(f"cannot map user ids: {error}") from None
