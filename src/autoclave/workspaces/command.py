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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoclave.core import IsolationError, Outcome, SandboxFault
from autoclave.core.outcome import Ended
from autoclave.sandbox.bootstrap import FOLDER, guest_command, guest_environment, require_current_parts
from autoclave.sandbox.cgroups import Group, find_place
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.namespace.root import base_interpreter, root_plan
from autoclave.workspaces.streams import CommandStreams

_GUEST = Path(__file__).parent / "guest" / "command.py"
HOME = "/.home"
"""Home of a command: an empty folder of its own, in memory."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_ETC = (
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/mime.types", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),  # not /etc/ssl/private
)
_HOST_NAMES = ("/etc/hosts", "/etc/resolv.conf")
_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
)
_SCRATCH = ("/mnt", "/media", "/srv", "/run", "/opt", "/tmp", "/var", "/home")
_FILE_CAPABILITIES = (0, 1, 3, 4)
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID: root needs them to act on files of other users."""
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": HOME, "LANG": "C.UTF-8", "TZ": "UTC"}
_POLL_S = 0.05
_START_TIMEOUT_S = 60.0
_NOT_FOUND = 127
_MAX_PATH_BYTES = 2000
"""Bytes of a path passed to the kernel at once; its limit is 4096."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of a command with all processes that it starts. `disk_mb` limits its writes to the folder."""

    wall_s: float = 60.0
    cpu_s: float = 60.0
    memory_mb: int = 1024
    processes: int = 256
    disk_mb: int = 1024
    scratch_mb: int = 256
    open_files: int = 1024
    output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class SealedCommand:
    """A command and the folder that it runs over.

    Attributes:
        argv: program and arguments; the program is looked for in PATH of the environment.
        tree: the folder of the host, which it sees at the same absolute path.
        layers: a folder with the empty folders `upper` and `work`, not below `tree`; the changes of the command go into
            `upper`. With the method `copy`, `upper` is a copy of the tree, which the command works on.
        tree_inode: device and inode number that `tree` must still have; None accepts any.
        method: `overlay`, or `copy` where the host cannot stack folders; see `overlay_problem`.
        environment: variables added to a minimal environment; nothing is inherited.
        hidden: files of the tree, without links on the way, that it can neither read nor change: it sees sockets there.
        shown: other folders and files of the host that it sees read-only, each with its path inside.
        listens: whether to make a socket that listens at `port` on its loopback interface.
        shares_network: whether it has the network of the host; not together with `listens`.
    """

    argv: tuple[str, ...]
    tree: Path
    layers: Path
    tree_inode: tuple[int, int] | None = None
    method: Literal["overlay", "copy"] = "overlay"
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    hidden: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    listens: bool = False
    port: int = 3128
    shares_network: bool = False


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
        self._root = _root_of(command, limits)
        place = find_place()
        self._group = Group(place) if place.is_usable else None
        self._first = -1
        with named_faults("a command cannot be started"):
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
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
        _write_id_maps(int(self._receive()["ids"]))
        self._send({})
        self._first = os.pidfd_open(int(self._receive()["first"]))
        self._send({})

    def is_like(self, command: SealedCommand, limits: CommandLimits) -> bool:
        """Return whether it can serve a command, on this host as it is now."""
        return self._root == _root_of(command, limits)

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
        content, descriptors, _, _ = socket.recv_fds(self._link, 6, 1)
        if not descriptors:
            raise self._fault(self._receive(content))
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
            "environment": {**_ENVIRONMENT, **command.environment},
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
        return self._command.method == "overlay" and _size_of(upper) > most

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
        content = json.dumps(message).encode()
        try:
            self._link.sendall(len(content).to_bytes(4, "big") + content)
        except OSError:
            raise self._fault(self._report()) from None

    def _receive(self, content: bytes = b"") -> dict[str, Any]:
        """Receive a message, or the rest of one that begins with `content`."""
        try:
            content += self._read(4 - len(content)) if len(content) < 4 else b""
            length = int.from_bytes(content[:4], "big")
            content += self._read(4 + length - len(content))
            answer = json.loads(content[4:])
        except (OSError, ValueError) as error:
            raise SandboxFault(f"the cell of a command does not answer ({error})") from None
        if "fault" in answer:
            raise self._fault(answer)
        return answer

    def _read(self, length: int) -> bytes:
        content = b""
        while len(content) < length:
            piece = self._link.recv(length - len(content))
            if not piece:
                raise EOFError
            content += piece
        return content

    def _fault(self, answer: dict[str, Any]) -> SandboxFault | IsolationError:
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


def _root_of(command: SealedCommand, limits: CommandLimits) -> dict[str, Any]:
    """Return the plan of a root, which is the same for many commands while mounts of the host and files in it are."""
    root = root_plan(base_interpreter())
    links = [(name, os.readlink(name)) for name in _SYSTEM if os.path.islink(name)]
    taken = {name for name, _ in links} | {"/dev/shm"}
    system = ["/usr", *(name for name in _SYSTEM if os.path.isdir(name) and not os.path.islink(name))]
    own = [path for path in root.binds if not path.startswith(tuple(f"{each}/" for each in (*system, *_SYSTEM)))]
    binds = [*system, *own, *_DEVICES, *(path for path in _OF_ETC if os.path.exists(path))]
    pairs = [*((path, path) for path in dict.fromkeys(binds)), *command.shown]
    sources = [*(source for source, _ in pairs), str(command.tree.resolve()), str(command.layers.resolve())]
    account = (
        f"root:x:0:0:root:{HOME}:/bin/sh\nuser:x:{os.geteuid() or 1000}:{os.getegid() or 1000}:user:{HOME}:/bin/sh\n"
    )
    resolving = _HOST_NAMES if command.shares_network else ()
    names = {path: Path(path).read_text(errors="replace") for path in resolving if os.path.exists(path)}
    groups = f"root:x:0:\nuser:x:{os.getegid() or 1000}:\n"
    return {
        "scratch": _scratch(sources),
        "binds": pairs,
        "masks": [path for path in root.masks if not path.startswith("/usr/")],
        "links": [*links, *_LINKS, *(each for each in root.links if each[0] not in taken)],
        "files": {
            "/etc/passwd": account,
            "/etc/group": groups,
            "/etc/hosts": "127.0.0.1 localhost\n",
            "/etc/nsswitch.conf": f"passwd: files\ngroup: files\nhosts: files{' dns' if resolving else ''}\n",
            "/etc/resolv.conf": "",
            **names,
        },
        "scratch_folders": ["/tmp", "/dev/shm", HOME],
        "scratch_bytes": limits.scratch_mb << 20,
        "scratch_files": 1 << 17,
        "shares_network": command.shares_network,
        "mounts": Path("/proc/self/mountinfo").read_text(errors="replace"),
        "files_of_host": [os.stat(path).st_ino for path in (*_OF_ETC, *_DEVICES) if os.path.exists(path)],
    }


def _write_id_maps(pid: int) -> None:
    """Map ids of the user namespace of a process to themselves: all of them for root, else the own."""
    try:
        if os.geteuid() == 0:
            for name in ("uid_map", "gid_map"):
                lines = [line.split() for line in Path(f"/proc/self/{name}").read_text().splitlines()]
                content = "".join(f"{inside} {inside} {length}\n" for inside, _, length in lines)
                Path(f"/proc/{pid}/{name}").write_text(content)
        else:
            Path(f"/proc/{pid}/setgroups").write_text("deny")
            Path(f"/proc/{pid}/uid_map").write_text(f"{os.geteuid()} {os.geteuid()} 1\n")
            Path(f"/proc/{pid}/gid_map").write_text(f"{os.getegid()} {os.getegid()} 1\n")
    except OSError as error:
        raise SandboxFault(f"cannot map user ids: {error}") from None


def _scratch(sources: Sequence[str]) -> str:
    """Return a folder of the host where the root can be assembled without hiding a source of it."""
    for path in _SCRATCH:
        is_free = not any(source == path or source.startswith(f"{path}/") for source in sources)
        if is_free and Path(path).is_dir():
            return path
    raise SandboxFault(f"none of {', '.join(_SCRATCH)} is a folder without parts of the cell in it")


def _size_of(folder: Path) -> int:
    """Return the bytes on disk of all files below."""
    total, waiting = 0, [""]
    with contextlib.suppress(OSError), _descriptor(str(folder), None) as top:
        while waiting:
            place = waiting.pop()
            with contextlib.suppress(OSError), _descriptor_below(top, place) as inner, os.scandir(inner) as inside:
                for each in inside:
                    if each.is_dir(follow_symlinks=False):
                        waiting.append(f"{place}{each.name}/")
                    else:
                        total += each.stat(follow_symlinks=False).st_blocks * 512
    return total


@contextlib.contextmanager
def _descriptor_below(top: int, path: str) -> Generator[int]:
    """Open a folder below another. Walks in pieces, since the path may be longer than the kernel takes."""
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(_descriptor(".", top))
        while path:
            end = len(path) if len(path) < _MAX_PATH_BYTES else path.rindex("/", 0, _MAX_PATH_BYTES) + 1
            with contextlib.ExitStack() as opening:
                place = opening.enter_context(_descriptor(path[:end], place))
                opened.close()
                opened.push(opening.pop_all())
            path = path[end:]
        yield place


@contextlib.contextmanager
def _descriptor(path: str, above: int | None) -> Generator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
