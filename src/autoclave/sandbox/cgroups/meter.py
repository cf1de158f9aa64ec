"""Measures and bounds the tests of one cell by the control group that its zygote is in.

The content of the group when the cell was made does not count: the zygote and the first process. The limit bounds the
rest, so the kernel refuses a burst that no sample would see.

Of a short test only kills are read here; the first process, which waits for its processes, measures the rest. The
peak of the cell counts from the moment that a longer one is watched.
"""

import contextlib
from collections.abc import Callable

from autoclave.core import ExhaustedFault
from autoclave.sandbox.cgroups.group import Group
from autoclave.sandbox.interface import Limits
from autoclave.sandbox.launch import TestUsage, Usage
from autoclave.sandbox.watch import RunDelays, cpu_seconds, descendants

_OWN_PROCESSES = 2
"""The zygote and the first process; they count against the limit of the group."""
_LIMIT_STEP = 1 << 20
"""Limits are rounded up to this; else a few pages would cause a write for each cell."""
_OWN_CPU_S = 0.01
"""Most CPU time of the first process itself for a test: one fork, then killing, reaping and cleaning."""


class GroupMeter:
    """Counts usage since `begin_test`, and refusals of the host since the start of the cell."""

    def __init__(self, group: Group, first_process: Callable[[], int]) -> None:
        self._group = group
        self._first_process = first_process
        self.kills = group.memory.events.descriptor
        self._delays = RunDelays()
        self._start_cpu_s = 0.0
        self._limit_mb = 0
        self._begin()
        self._start_refusals = group.processes.num_refusals() if group.processes else 0

    def begin_cell(self, limits: Limits) -> None:
        memory = self._group.memory
        self._limit_mb = limits.memory_mb
        memory.limit(_rounded_up(self._start_bytes + (limits.memory_mb << 20)))
        if self._group.processes:
            self._group.processes.limit(limits.processes + _OWN_PROCESSES)

    def begin_test(self) -> None:
        # Short tests leave nothing; leftovers of others may meet the limit while they are removed.
        if self._is_watched or self._is_outdated:
            self._begin()

    def _begin(self) -> None:
        memory = self._group.memory
        self._start_bytes, self._start_kills, self._start_hits = memory.now(), memory.num_kills(), memory.num_hits()
        self._is_watched = self._is_outdated = False

    def _watch(self) -> None:
        self._is_watched = True
        self._delays = RunDelays()
        self._start_cpu_s = self._group.cpu.seconds() - sum(map(cpu_seconds, descendants(self._first_process())))
        memory = self._group.memory
        memory.restart_peak()
        if memory.num_kills() == self._start_kills:  # short tests before this one may have met the limit, too
            self._start_hits = memory.num_hits()

    def usage(self) -> Usage:
        if not self._is_watched:
            self._watch()
        num_processes = self._sample_processes()
        return Usage(self._cpu_s(), self._own_mb(self._group.memory.now()), num_processes, self._delays.seconds)

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        if not self._is_watched:
            return TestUsage(reaped_cpu_s)
        cpu_s = self._cpu_s()
        is_more = cpu_s > reaped_cpu_s + _OWN_CPU_S
        return TestUsage(cpu_s if is_more else reaped_cpu_s, self._own_mb(self._group.memory.peak()))

    def is_memory_exceeded(self) -> bool:
        memory = self._group.memory
        if memory.num_kills() == self._start_kills:
            return False
        self._is_outdated = True
        if memory.num_hits() == self._start_hits:
            raise ExhaustedFault("the host ran out of memory, not the cell: the kernel killed a process of a test")
        return True

    def refusal_of_host(self) -> str:
        processes = self._group.processes
        return processes.refusal_of_host(self._start_refusals) if processes else ""

    def preparing_cpu_s(self) -> float:
        return cpu_seconds(self._first_process())

    def _sample_processes(self) -> int:
        num_processes = 0
        for pid in descendants(self._first_process()):
            with contextlib.suppress(OSError):  # it ended meanwhile
                self._delays.sample(pid)
                num_processes += 1
        return num_processes

    def _own_mb(self, group_bytes: int | None) -> float:
        """Return the part of the test, at most its limit: the kernel would reclaim page cache above it."""
        own_bytes = 0 if group_bytes is None else max(0, group_bytes - self._start_bytes)
        return min(own_bytes / 2**20, self._limit_mb)

    def _cpu_s(self) -> float:
        return self._group.cpu.seconds() - self._start_cpu_s


def _rounded_up(num_bytes: int) -> int:
    return -(-num_bytes // _LIMIT_STEP) * _LIMIT_STEP
