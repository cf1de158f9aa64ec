"""Run a command over a folder, sealed, so that what it writes there can be looked at before anybody else sees it.

Theory of operation. There are four processes:

    ours            reads the output, watches the limits, serves the listening socket if there is one
      keeper        exec'ed as a bare interpreter, leaves the host: user, mount, net, ipc, uts, cgroup and (for its
        |           child) process namespaces; waits
        +- first    process 1 of the namespace: builds a read-only root of what a command needs of the host, puts an
             |      overlay on the place of the folder, pivots, starts the command, kills and reaps what it left
             +- command   own session, resource limits, no_new_privs, seccomp; no capability, or, for root, those that
                          files need, which reach no further than the file systems that are there

The folder of the host is the lower layer of the overlay and is never written to; the upper folder, on the host too, has
what the command changed. The root has /usr and its kin, the interpreter, a small /etc, devices without state, /tmp and
/dev/shm of limited size, and of /proc what tells of processes. The network is empty; on request there is one socket on
its loopback interface that listens, made inside and handed out to us: the only way out, and we are at its other end.

Ids. An ordinary user keeps the own id and has no other. For root all ids stay as they are, so that files get the owners
that they would get. That is no more than the command could do in the folder anyway: everything else is mounted
read-only or is the cell's own, settings of the kernel are not in /proc, devices cannot be made, and no process, socket,
key or handle of the host can be named.

Who kills whom. A limit: we kill the first process by its descriptor, and the kernel everything below it. If we die, the
keeper is killed by the kernel, and with it the first process. Mounts end with the namespace.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoclave.core import IsolationError, Outcome, SandboxFault
from autoclave.core.outcome import Ended
from autoclave.sandbox.bootstrap import FOLDER, guest_command, guest_environment
from autoclave.sandbox.cgroups import Group, find_place
from autoclave.sandbox.exhaustion import named_faults
from autoclave.sandbox.namespace.root import base_interpreter, root_plan

_GUEST = Path(__file__).parent / "guest" / "command.py"
PLACE = "/work"
"""Path at which a command finds the folder."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_ETC = (
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/mime.types", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),  # not /etc/ssl/private
)
_LINKS = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
)
_SCRATCH = ("/mnt", "/media", "/srv", "/run", "/opt", "/tmp", "/var", "/home")
_FILE_CAPABILITIES = (0, 1, 3, 4)
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID: what root needs to act on files of others as it would."""
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8", "TZ": "UTC"}
_LOOK_S = 0.05
_START_TIMEOUT_S = 60.0
_NOT_FOUND = 127
_PIECE = 1 << 16
_LONGEST = 2000
"""Bytes of a path that are given to the kernel at once: it takes 4096."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of a command, with all processes that it starts. `disk_mb`: of what it writes to the folder."""

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
        tree: the folder of the host that it sees at `/work`.
        layers: a folder of ours with the empty folders `upper` and `work`, not below `tree`; what the command changes
            gets into `upper`. With the method `copy`, `upper` is a copy of the tree, which the command works on.
        tree_inode: device and inode number of what has to be at `tree` still; None: whatever is there.
        method: `overlay`, or `copy` where the host cannot stack folders; see `overlay_problem`.
        folder: where it starts, below the tree.
        environment: beyond a plain one; nothing is inherited.
        read_only: paths of the tree that it can read only.
        shown: other folders and files of the host that it sees read-only, each with the path that it has there.
        listens: whether to hand out a socket that listens at `port` on its loopback interface.
    """

    argv: tuple[str, ...]
    tree: Path
    layers: Path
    tree_inode: tuple[int, int] | None = None
    method: Literal["overlay", "copy"] = "overlay"
    folder: str = ""
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    read_only: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    listens: bool = False
    port: int = 3128


def run_command(
    command: SealedCommand,
    limits: CommandLimits | None = None,
    serve: Callable[[socket.socket], contextlib.AbstractContextManager[Any]] | None = None,
) -> Outcome:
    """Run a command to its end, or to a limit. When this returns, no process of it is left.

    `serve` is given the listening socket of `command.listens`; what it returns is entered for the length of the run.
    `Outcome.detail` names what the host would not let the cell have.

    Raises:
        IsolationError: the host refuses namespaces.
        SandboxFault: the cell could not be made.
    """
    limits = limits or CommandLimits()
    with contextlib.ExitStack() as opened:
        cell = _Cell(command, limits)
        opened.callback(cell.close)
        door = cell.start()
        if door is not None and serve is not None:
            opened.enter_context(door)
            opened.enter_context(serve(door))
        cell.go()
        return cell.watch()


def python_executable() -> str:
    """The interpreter that commands find, outside of any virtual environment."""
    return base_interpreter()


def overlay_problem(folder: Path) -> str:
    """Reason for which commands cannot have a layer whose upper folder is in `folder`; empty when they can. Tries it.

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
    """One command from start to end."""

    def __init__(self, command: SealedCommand, limits: CommandLimits) -> None:
        self._command, self._limits = command, limits
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

    def start(self) -> socket.socket | None:
        """Build the cell; the socket that listens in it, if there is to be one."""
        if self._group:
            self._group.take_in(self._process.pid)
            self._group.memory.limit(self._group.memory.now() + (self._limits.memory_mb << 20))
            if self._group.processes:
                self._group.processes.limit(self._limits.processes + 2)
        self._send(self._plan())
        asked = self._receive()
        _write_id_maps(int(asked["ids"]))
        self._send({})
        self._first = os.pidfd_open(int(self._receive()["first"]))
        self._send({})
        if not self._command.listens:
            return None
        content, descriptors, _, _ = socket.recv_fds(self._link, 6, 1)
        if not descriptors:
            raise self._fault(self._rest(content))
        return socket.socket(fileno=descriptors[0])

    def go(self) -> None:
        """Have the command start, where that waits for us."""
        if self._command.listens:
            self._send({})

    def watch(self) -> Outcome:
        """Serve its streams, look at the limits, and say how it ended."""
        began = time.monotonic()
        streams = _Streams(self._process, self._command.stdin, self._limits.output_bytes)
        ended: Ended | None = None
        looks = self._looks(began)
        self._link.settimeout(None)
        streams.also(self._link)
        while not streams.is_reported:
            streams.turn(_LOOK_S)
            if ended is None and (ended := next(looks) or (Ended.OUTPUT if streams.is_over else None)):
                self._kill()
        report = self._report()
        streams.drain()
        return self._outcome(report, ended, streams, time.monotonic() - began)

    def close(self) -> None:
        """Kill what is left."""
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

    # --- Inside -----------------------------------------------------------------------------------------------------

    def _plan(self) -> dict[str, Any]:
        command, limits = self._command, self._limits
        root = root_plan(base_interpreter())
        links = [(name, os.readlink(name)) for name in _SYSTEM if os.path.islink(name)]
        taken = {name for name, _ in links} | {"/dev/shm"}
        system = ["/usr", *(name for name in _SYSTEM if os.path.isdir(name) and not os.path.islink(name))]
        own = [path for path in root.binds if not path.startswith(tuple(f"{each}/" for each in (*system, *_SYSTEM)))]
        binds = [*system, *own, *_DEVICES, *(path for path in _OF_ETC if os.path.exists(path))]
        pairs = [*((path, path) for path in dict.fromkeys(binds)), *command.shown]
        sources = [*(source for source, _ in pairs), str(command.tree.resolve()), str(command.layers.resolve())]
        number = os.geteuid()
        account = f"root:x:0:0:root:/tmp:/bin/sh\nuser:x:{number or 1000}:{os.getegid() or 1000}:user:/tmp:/bin/sh\n"
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
                "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
                "/etc/resolv.conf": "",
            },
            "place": PLACE,
            "method": command.method,
            "lower": str(command.tree.resolve()),
            "lower_inode": command.tree_inode,
            "layers": str(command.layers.resolve()),
            "read_only": list(command.read_only),
            "scratch_bytes": limits.scratch_mb << 20,
            "scratch_files": 1 << 17,
            "listens": command.listens,
            "port": command.port,
            "folder": f"{PLACE}/{command.folder}" if command.folder else PLACE,
            "argv": list(command.argv),
            "environment": {**_ENVIRONMENT, **command.environment},
            "capabilities": list(_FILE_CAPABILITIES) if number == 0 else [],
            "limits": list(self._resource_limits()),
        }

    def _resource_limits(self) -> Iterator[tuple[int, int]]:
        limits = self._limits
        yield resource.RLIMIT_CORE, 0
        yield resource.RLIMIT_CPU, int(limits.cpu_s) + 1
        yield resource.RLIMIT_FSIZE, limits.disk_mb << 20
        yield resource.RLIMIT_NOFILE, limits.open_files
        if os.geteuid():  # of root the kernel does not count them
            yield resource.RLIMIT_NPROC, limits.processes
        if not self._group:
            yield resource.RLIMIT_AS, limits.memory_mb << 20

    def _looks(self, began: float) -> Iterator[Ended | None]:
        """Yield the limit that is exceeded now, time after time."""
        limits, pause_s, next_look = self._limits, 4 * _LOOK_S, began
        upper = self._command.layers / "upper"
        while True:
            now = time.monotonic()
            if now - began > limits.wall_s:
                yield Ended.WALL_TIME
            elif self._group and self._group.cpu.seconds() > limits.cpu_s:
                yield Ended.CPU_TIME
            elif now >= next_look:
                next_look = now + pause_s
                yield (
                    Ended.DISK if self._command.method == "overlay" and _size_of(upper) > limits.disk_mb << 20 else None
                )
                pause_s = max(pause_s, 10 * (time.monotonic() - now))  # looking takes a tenth of the time
            else:
                yield None

    def _outcome(self, report: dict[str, Any], ended: Ended | None, streams: _Streams, wall_s: float) -> Outcome:
        if ended is None and self._is_out_of_memory():
            ended = Ended.MEMORY
        if ended is None and self._command.method == "overlay":
            is_over = _size_of(self._command.layers / "upper") > self._limits.disk_mb << 20
            ended = Ended.DISK if is_over else None
        status = report.get("status")
        code = os.waitstatus_to_exitcode(status) if isinstance(status, int) else None
        if ended is None and code == -signal.SIGXCPU:
            ended = Ended.CPU_TIME
        stderr = streams.printed["stderr"]
        if refused := str(report.get("refused", "")):
            code, stderr = _NOT_FOUND, f"{refused}\n".encode()
        natural = Ended.EXITED if code is not None and code >= 0 else Ended.SIGNALLED
        cpu_s = self._group.cpu.seconds() if self._group else float(report.get("cpu_s", 0.0))
        peak = self._group.memory.peak() if self._group else None
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
            detail="; ".join(report.get("notes", ())),
        )

    def _is_out_of_memory(self) -> bool:
        return self._group is not None and self._group.memory.num_kills() > 0 and self._group.memory.num_hits() > 0

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
            self._process.wait()  # for the keeper, who waits for all
        elif self._process.poll() is None:
            self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode()
        try:
            self._link.sendall(len(content).to_bytes(4, "big") + content)
        except OSError:
            raise self._fault(self._report()) from None

    def _receive(self) -> dict[str, Any]:
        return self._rest(b"")

    def _rest(self, content: bytes) -> dict[str, Any]:
        """The message that begins with `content`."""
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
        words = str(answer.get("fault", "it ended without a word"))
        if answer.get("errno") in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS) and "unshare" in words:
            return IsolationError(f"this host refuses namespaces ({words}). Fix: `autoclave doctor` names it")
        return SandboxFault(f"the cell of a command cannot be made: {words}")


class _Streams:
    """The three streams of a command, without waiting for any of them."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, most_bytes: int) -> None:
        self.printed = {"stdout": bytearray(), "stderr": bytearray()}
        self.cut = {"stdout": 0, "stderr": 0}
        self.is_reported = False
        self._most, self._rest = most_bytes, memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        for name in ("stdout", "stderr", "stdin"):
            stream = getattr(process, name)
            os.set_blocking(stream.fileno(), False)
            event = selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ
            self._selector.register(stream, event, name)
        self._stdin = process.stdin
        if not stdin:
            self._end_stdin()

    @property
    def is_over(self) -> bool:
        """True if more came than is kept."""
        return any(self.cut.values())

    def also(self, link: socket.socket) -> None:
        """Have `is_reported` become true when there is something to read from `link`."""
        self._selector.register(link, selectors.EVENT_READ, "link")

    def turn(self, timeout_s: float) -> None:
        """Move what can be moved."""
        for key, _ in self._selector.select(timeout_s):
            if key.data == "link":
                self.is_reported = True
            elif key.data == "stdin":
                self._feed()
            else:
                self._take(key.fileobj, key.data)

    def drain(self) -> None:
        """Read what is still in the pipes, of which nobody is left to write."""
        while any(key.data in self.printed for key in list(self._selector.get_map().values())):
            before = len(self._selector.get_map())
            self.turn(0.0)
            if not self._selector.select(0.0) and len(self._selector.get_map()) == before:
                break
        self._selector.close()

    def _take(self, stream: Any, name: str) -> None:
        try:
            piece = os.read(stream.fileno(), _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._selector.unregister(stream)
            return
        room = self._most - len(self.printed[name])
        self.printed[name] += piece[:room]
        self.cut[name] += max(0, len(piece) - room)

    def _feed(self) -> None:
        try:
            self._rest = self._rest[os.write(self._stdin.fileno(), self._rest[:_PIECE]) :]  # pyright: ignore
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = memoryview(b"")
        if not self._rest:
            self._end_stdin()

    def _end_stdin(self) -> None:
        assert self._stdin is not None
        self._selector.unregister(self._stdin)
        self._stdin.close()


def _write_id_maps(pid: int) -> None:
    """Have ids mean the same in the user namespace of a process as here: all of them for root, else the own."""
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
    """A folder of the host on which the root can be assembled without hiding what goes into it."""
    for path in _SCRATCH:
        is_free = not any(source == path or source.startswith(f"{path}/") for source in sources)
        if is_free and Path(path).is_dir():
            return path
    raise SandboxFault(f"none of {', '.join(_SCRATCH)} is a folder without parts of the cell in it")


def _size_of(folder: Path) -> int:
    """Bytes on disk of all files below."""
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
    """A folder below another, whose path may be longer than a path may be: it is walked in pieces."""
    with contextlib.ExitStack() as opened:
        place = opened.enter_context(_descriptor(".", top))
        while path:
            end = len(path) if len(path) < _LONGEST else path.rindex("/", 0, _LONGEST) + 1
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
