"""The files of a control group, under the names of both versions. Reading an open one takes a microsecond."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from autoclave.core import SandboxFault

_Given = TypeVar("_Given")
_Got = TypeVar("_Got")
_SWAP_BYTES = 1 << 20
"""Added to the swap limit of version 1: the kernel counts hits of the plain limit only, so that one comes first."""


class ControlFile:
    """One file of a group: kept open if every test reads it, else opened for each access."""

    def __init__(self, path: Path, *, is_kept_open: bool) -> None:
        """Open it, for writing too where that is allowed. Raises OSError: it does not exist or may not be read."""
        self._path = path
        self._lock = threading.Lock()  # after a close by another thread the number may be another file
        self._is_kept_open = is_kept_open
        self.descriptor = _open(path)
        if not is_kept_open:
            self.close()

    def number(self) -> int:
        """The only number in it. `max` is -1."""
        text = self._read()
        return -1 if text.startswith(b"max") else int(text)

    def entry(self, name: bytes) -> int:
        """Return the number after `name` at the start of a line; 0 if there is no such line."""
        for line in self._read().splitlines():
            key, _, value = line.partition(b" ")
            if key == name:
                return int(value)
        return 0

    def write(self, number: int) -> None:
        """Set it. Raises SandboxFault: the kernel refuses."""
        try:
            self._access(os.pwrite, b"%d" % number)
        except OSError as error:
            raise SandboxFault(f"{self._path} cannot be set to {number}: {error.strerror}") from None

    def close(self) -> None:
        with self._lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1

    def _read(self) -> bytes:
        try:
            return self._access(os.pread, 4096)
        except OSError as error:
            raise SandboxFault(f"{self._path} cannot be read: {error.strerror}") from None

    def _access(self, act: Callable[[int, _Given, int], _Got], given: _Given) -> _Got:
        if self._is_kept_open:
            with self._lock:
                return act(self.descriptor, given, 0)
        descriptor = _open(self._path)
        try:
            return act(descriptor, given, 0)
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class OpenFolder:
    """The folder of a group, and those of its files that are kept open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: list[ControlFile] = []

    def keep(self, name: str) -> ControlFile:
        """A file that is kept open. Raises OSError: it does not exist or may not be read."""
        self._kept.append(ControlFile(self._path / name, is_kept_open=True))
        return self._kept[-1]

    def file(self, name: str) -> ControlFile:
        """A file that is opened for each access. Raises OSError: it does not exist or may not be read."""
        return ControlFile(self._path / name, is_kept_open=False)

    def file_if_there(self, name: str) -> ControlFile | None:
        """A file that is opened for each access; None if this kernel does not have it."""
        return self.file(name) if self.has(name) else None

    def has(self, name: str) -> bool:
        """True if this kernel has the file."""
        return (self._path / name).exists()

    def close(self) -> None:
        """Close all files; later reads raise a fault."""
        for file in self._kept:
            file.close()


class Memory(ABC):
    """Memory of a group: anonymous and shared pages, files in memory, page cache, what the kernel keeps for it."""

    def __init__(self, now: ControlFile, limit: ControlFile, events: ControlFile) -> None:
        self._now, self._limit, self.events = now, limit, events
        self._limit_now = -1

    def limit(self, num_bytes: int) -> None:
        """Bound it, swap included."""
        if num_bytes != self._limit_now:
            self._bound(num_bytes)
            self._limit_now = num_bytes

    def now(self) -> int:
        """Bytes in use."""
        return self._now.number()

    def num_kills(self) -> int:
        """Number of processes that were killed because memory ran out, here or on the host."""
        return self.events.entry(b"oom_kill")

    @abstractmethod
    def _bound(self, num_bytes: int) -> None: ...

    @abstractmethod
    def restart_peak(self) -> None:
        """Reset `peak`, where the kernel can."""

    @abstractmethod
    def peak(self) -> int | None:
        """Most bytes in use since `restart_peak`; None if unknown."""

    @abstractmethod
    def num_hits(self) -> int:
        """Number of times that this group met its limit."""


class MemoryV1(Memory):
    """Version 1."""

    def __init__(self, folder: OpenFolder) -> None:
        files = folder.keep("memory.usage_in_bytes"), folder.file("memory.limit_in_bytes")
        super().__init__(*files, folder.keep("memory.oom_control"))
        self._peak = folder.keep("memory.max_usage_in_bytes")
        self._hits = folder.keep("memory.failcnt")
        self._swap_limit = folder.file_if_there("memory.memsw.limit_in_bytes")
        if self._swap_limit is None:
            folder.file("memory.swappiness").write(0)

    def _bound(self, num_bytes: int) -> None:
        if self._swap_limit:
            self._swap_limit.write(-1)  # it may never be below the other
        self._limit.write(num_bytes)
        if self._swap_limit:
            self._swap_limit.write(num_bytes + _SWAP_BYTES)

    def restart_peak(self) -> None:
        self._peak.write(0)

    def peak(self) -> int | None:
        return self._peak.number()

    def num_hits(self) -> int:
        return self._hits.number()


class MemoryV2(Memory):
    """Version 2. The peak can be reset from Linux 6.12 on; before, only a new peak is known."""

    def __init__(self, folder: OpenFolder) -> None:
        super().__init__(folder.keep("memory.current"), folder.file("memory.max"), folder.keep("memory.events"))
        self._peak = folder.keep("memory.peak") if folder.has("memory.peak") else None
        self._old_peak = 0
        if swap_limit := folder.file_if_there("memory.swap.max"):
            swap_limit.write(0)

    def _bound(self, num_bytes: int) -> None:
        self._limit.write(num_bytes)

    def restart_peak(self) -> None:
        if not self._peak:
            return
        try:
            self._peak.write(0)
            self._old_peak = 0
        except SandboxFault:
            self._old_peak = self._peak.number()

    def peak(self) -> int | None:
        peak = self._peak.number() if self._peak else 0
        return peak if peak > self._old_peak else None

    def num_hits(self) -> int:
        return self.events.entry(b"oom")


class CpuTime:
    """CPU seconds of all processes that were ever in the group, also of those that no process waited for."""

    def __init__(self, folder: OpenFolder, version: int) -> None:
        self._version = version
        self._file = folder.keep("cpuacct.usage" if version == 1 else "cpu.stat")

    def seconds(self) -> float:
        return self._file.number() / 1e9 if self._version == 1 else self._file.entry(b"usage_usec") / 1e6


class Processes:
    """Processes and threads of the group; the same in both versions."""

    def __init__(self, folder: OpenFolder) -> None:
        self._limit = folder.file("pids.max")
        self._events = folder.keep("pids.events")
        self._peak = folder.file_if_there("pids.peak")  # from Linux 6.0 on
        self._limit_now = -1

    def limit(self, number: int) -> None:
        if number != self._limit_now:
            self._limit.write(number)
            self._limit_now = number

    def num_refusals(self) -> int:
        """Number of forks that were refused, by this group or one above it."""
        return self._events.entry(b"max")

    def refusal_of_host(self, num_known: int) -> str:
        """Return why a group above refused forks, beyond `num_known` refusals; empty if none did, or this group did."""
        if self.num_refusals() == num_known or self._is_own_limit_met():
            return ""
        return "a control group above allows no more processes: raise its pids.max, or have fewer judge.workers"

    def _is_own_limit_met(self) -> bool:
        """Return whether the limit was ever reached; True also if unknown."""
        return self._peak is None or 0 <= self._limit_now <= self._peak.number()
