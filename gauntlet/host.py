"""What the host looks like from outside of all cells, and what an entry changed. Nothing a program says counts here.

Read: /proc, and the names in folders for temporary files. Other work on the same host goes on meanwhile, so files and
sockets count when they carry the run's mark, which every program of the gauntlet gives to what it makes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SETTLE_S = 3.0
"""What the kernel tears down after a kill may take so long on a busy machine."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock")
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 16384 | 1 << 18
_OF_ENGINES = ("/containers/", "/docker/", "/netns/")
_LOST_MB = 1024
"""Less memory available than before by so much is no noise of neighbours."""


def _mounts() -> str:
    """What is mounted here, but for the file systems that a container engine keeps for its living containers."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return "\n".join(line for line in lines if not any(part in line for part in _OF_ENGINES))


@dataclass(frozen=True, slots=True)
class View:
    """One look at the host. All but memory must be the same after an entry."""

    num_processes: int
    num_nested: int
    """Processes below the judge, and those of them that are not its own children."""
    marked: frozenset[str]
    mounts: str
    system_v: frozenset[str]
    sources: str
    available_mb: float
    resident_mb: float


def leave_shared_mounts() -> None:
    """Have a view of mounts of our own, where we may, so that what others mount meanwhile is not taken for damage.

    To be called before any thread is started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) == 0:
        libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None)


class Host:
    """Looks at the host, and says what is different."""

    def __init__(self, mark: str, open_port: int, sources: Path, judge_growth_mb: int) -> None:
        """Watch `sources` for changes, names with `mark`, the port, and how much memory the judge needs at its peak."""
        self._mark = mark
        self._port = open_port
        self._sources = sources
        self._growth_mb = judge_growth_mb
        self._num_processes = 0

    def expect_no_more_processes(self) -> None:
        """The judge has started all that it keeps; some of these may end and be started again."""
        self._num_processes = sum(1 for _ in _descendants(os.getpid()))

    def look(self) -> View:
        """The host now. The judge's peak memory counts from here on."""
        Path("/proc/self/clear_refs").write_text("5")
        processes = set(_descendants(os.getpid()))
        return View(
            num_processes=len(processes),
            num_nested=len(processes - set(_children(os.getpid()))),
            marked=frozenset(self._marked()),
            mounts=_mounts(),
            system_v=frozenset(_system_v()),
            sources=_digest_of(self._sources),
            available_mb=_kib("/proc/meminfo", "MemAvailable") / 1024,
            resident_mb=_kib("/proc/self/status", "VmRSS") / 1024,
        )

    def damage_since(self, before: View) -> list[str]:
        """What is worse than before, once things had time to settle. Empty is well."""
        peak_mb = _kib("/proc/self/status", "VmHWM") / 1024
        deadline = time.monotonic() + _SETTLE_S
        while (found := self._differences(before)) and time.monotonic() < deadline:
            time.sleep(0.05)  # until it is gone, or is not going to go
        if peak_mb - before.resident_mb > self._growth_mb:
            found.append(f"the judge grew by {peak_mb - before.resident_mb:.0f} MiB")
        return found

    def _differences(self, before: View) -> list[str]:
        now = self.look()
        found: list[str] = []
        more = max(now.num_processes - self._num_processes, now.num_nested - before.num_nested)
        if more > 0:
            found.append(f"{more} processes left")
        found += [f"left: {name}" for name in sorted(now.marked - before.marked)]
        if now.mounts != before.mounts:
            found.append("mounts changed")
        found += [f"System V object: {name}" for name in sorted(now.system_v - before.system_v)]
        if now.sources != before.sources:
            found.append(f"{self._sources} changed")
        if before.available_mb - now.available_mb > _LOST_MB:
            found.append(f"{before.available_mb - now.available_mb:.0f} MiB less memory available")
        return found

    def _marked(self) -> Iterator[str]:
        for folder in (*_TEMPORARY, os.getcwd(), str(Path.home())):
            try:
                yield from (f"{folder}/{name}" for name in os.listdir(folder) if self._mark in name)
            except OSError:
                continue
        for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
            if self._mark in line:
                yield f"unix socket {line.split()[-1]}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                yield f"listener on port {self._port}"


def _system_v() -> Iterator[str]:
    for kind in ("shm", "sem", "msg"):
        path = Path(f"/proc/sysvipc/{kind}")
        if path.exists():
            yield from (f"{kind} {' '.join(line.split()[:2])}" for line in path.read_text().splitlines()[1:])


def _digest_of(folder: Path) -> str:
    """Return a digest of names, sizes, times and modes of the files below, without the caches of Python."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if "__pycache__" not in path.parts:  # Python writes there, under other names at first
            stat = path.lstat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_mode}\n".encode())
    return digest.hexdigest()


def _kib(path: str, field: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"{path} has no line {field}")


def _descendants(root: int) -> Iterator[int]:
    """Below `root`, ended ones that nobody reaped included."""
    waiting = [root]
    while waiting:
        children = _children(waiting.pop())
        yield from children
        waiting.extend(children)


def _children(parent: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{parent}/task")
        listings = [Path(f"/proc/{parent}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    return [int(pid) for text in listings for pid in text.split()]
