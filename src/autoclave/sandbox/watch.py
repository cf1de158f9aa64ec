"""What the processes of a cell use right now, read from the host's /proc: out of the program's reach.

A look misses what came and went since the last one, what a parent let go unnoticed, and memory that no process maps at
that moment. Control groups miss none of it (`cgroups/`); they need a host that permits them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from autoclave.sandbox.interface import Limits
from autoclave.sandbox.launch import TestUsage, Usage

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHARED_ANONYMOUS = "/dev/zero (deleted)"
HAS_DELAYS = Path("/proc/self/schedstat").exists()


class ProcessMeter:
    """Adds up the descendants of one process. Bounds nothing: what happens between two looks is not seen."""

    def __init__(self, first_process: Callable[[], int]) -> None:
        self._first_process = first_process
        self._delays = RunDelays()

    def begin_cell(self, limits: Limits) -> None:
        """Nothing to do: the judge compares samples with the limits."""

    def begin_test(self) -> None:
        self._delays = RunDelays()

    def usage(self) -> Usage:
        cpu_s, memory, count = 0.0, _Memory(), 0
        for pid in descendants(self._first_process()):
            try:
                cpu_s += cpu_seconds(pid)
                memory.add(pid)
                self._delays.look_at(pid)
            except (OSError, LookupError, ValueError):
                continue  # it ended meanwhile
            count += 1
        return Usage(cpu_s, memory.total_mb, count, self._delays.seconds)

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        return TestUsage(reaped_cpu_s)

    def is_memory_exceeded(self) -> bool:
        return False

    def refusal_of_host(self) -> str:
        return ""

    def preparing_cpu_s(self) -> float:
        return cpu_seconds(self._first_process())


class RunDelays:
    """How long the threads of a test were ready but had to wait for a core, as the scheduler counts it.

    Of a thread that has ended the last look counts; one that came and went between two looks is not seen.
    """

    def __init__(self) -> None:
        self._last_ns: dict[str, int] = {}
        self._ended_ns = 0

    def look_at(self, pid: int) -> None:
        """Take in the threads of one process.

        Raises:
            OSError: it has ended.
        """
        for task in os.listdir(f"/proc/{pid}/task"):
            delay_ns = _delay_ns(pid, task)
            if delay_ns is None:
                continue
            last_ns = self._last_ns.get(task, 0)
            if delay_ns < last_ns:  # the number of an ended thread was given to a new one
                self._ended_ns += last_ns
            self._last_ns[task] = delay_ns

    @property
    def seconds(self) -> float | None:
        """The sum over all threads seen; None on a kernel that does not count it."""
        return (self._ended_ns + sum(self._last_ns.values())) / 1e9 if HAS_DELAYS else None


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and the children it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND


def _delay_ns(pid: int, task: str) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None


def descendants(root: int) -> Iterator[int]:
    """All processes below `root`, itself excluded, as far as one look can tell."""
    waiting = [root]
    while waiting:
        try:
            children = [
                child for task in os.listdir(f"/proc/{waiting[-1]}/task") for child in _children(waiting[-1], task)
            ]
        except OSError:
            children = []
        waiting.pop()
        yield from children
        waiting.extend(children)


def _children(pid: int, task: str) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []


@dataclass(slots=True)
class _Memory:
    """Memory of several processes. Shared anonymous memory counts whole and once, mapped pages of it or not."""

    own_bytes: int = 0
    shared_bytes: int = 0
    shared_sizes: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, pid: int) -> None:
        """Take in one process.

        Raises:
            OSError: it has ended.
        """
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except PermissionError:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            self.own_bytes += (int(resident) - int(shared)) * _PAGE_BYTES
            return
        sizes = {line.partition(":")[0]: int(line.split()[1]) << 10 for line in lines[1:]}
        shared_bytes = sizes.get("Pss_Shmem", 0)
        self.own_bytes += sizes["Pss"] + sizes.get("SwapPss", 0) - shared_bytes
        self.shared_bytes += shared_bytes
        self._add_mappings(pid)

    @property
    def total_mb(self) -> float:
        return (self.own_bytes + max(self.shared_bytes, sum(self.shared_sizes.values()))) / 2**20

    def _add_mappings(self, pid: int) -> None:
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if line.endswith(_SHARED_ANONYMOUS):
                addresses, _, _, _, inode, _ = line.split(None, 5)
                start, end = (int(address, 16) for address in addresses.split("-"))
                self.shared_sizes[inode] = max(self.shared_sizes.get(inode, 0), end - start)
