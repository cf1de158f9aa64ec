"""Current usage of the processes of a cell, read from the host's /proc: out of the program's reach.

A sample misses processes that started and ended since the last one, children that no parent waits for, and memory that
no process maps at that moment. Control groups (`cgroups/`) miss nothing; they need a host that permits them.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from autoclave.sandbox.interface import Limits
from autoclave.sandbox.launch import TestUsage, Usage

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_SAMPLE_S = 0.05
"""Most time that one sample stands for, also when the judge was late."""
_UNCHARGED_S = 0.05
"""Two clocks measure the time of ended processes and the time charged for them; they may differ by this."""
_SHARED_ANONYMOUS = "/dev/zero (deleted)"
HAS_DELAYS = Path("/proc/self/schedstat").exists()


class ProcessMeter:
    """Adds up the descendants of one process. Bounds nothing, and misses what happens between two samples."""

    def __init__(self, first_process: Callable[[], int]) -> None:
        self.kills = -1
        self._first_process = first_process
        self._delays = RunDelays()
        self._hidden = HiddenTime()

    def begin_cell(self, limits: Limits) -> None:
        """Do nothing: the judge compares samples with the limits."""

    def begin_test(self) -> None:
        self._delays = RunDelays()
        self._hidden = HiddenTime()

    def usage(self) -> Usage:
        cpu_s, memory, seen = 0.0, _Memory(), list[_Stat]()
        for pid in descendants(self._first_process()):
            try:
                stat = _stat_of(pid)
                memory.add(pid)
                self._delays.sample(pid)
            except (OSError, LookupError, ValueError):
                continue  # it ended meanwhile
            cpu_s += stat.own_s + stat.children_s
            seen.append(stat)
        self._hidden.sample(seen, time.monotonic())
        return Usage(max(cpu_s, self._hidden.seconds), memory.total_mb, len(seen), self._delays.seconds)

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        return TestUsage(reaped_cpu_s)

    def is_memory_exceeded(self) -> bool:
        return False

    def refusal_of_host(self) -> str:
        return ""

    def preparing_cpu_s(self) -> float:
        return cpu_seconds(self._first_process())


class RunDelays:
    """Seconds that the threads of a test were ready but waited for a core, as the scheduler counts them.

    For an ended thread the last sample counts; one that started and ended between two samples is missed.
    """

    def __init__(self) -> None:
        self._last_ns: dict[str, int] = {}
        self._ended_ns = 0

    def sample(self, pid: int) -> None:
        """Take in the threads of one process. Raises OSError: it has ended."""
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


class HiddenTime:
    """CPU time of a test's children that no process waits for: when they end, no process is charged for it.

    There are such children if ended processes had used more, as far as sampled, than all waiting parents were charged.
    Only then the time is estimated, from the share of samples that find a process of the test running.
    """

    def __init__(self) -> None:
        self._last_sample: float | None = None
        self._known: dict[tuple[int, int], float] = {}
        self._gone_s = 0.0
        self._has_lost_any = False
        self._busy_s = 0.0

    def sample(self, processes: "Sequence[_Stat]", now: float) -> None:
        """Take in all processes of the test at the time `now`, in seconds."""
        seen = {(process.pid, process.start): process.ran_s for process in processes}
        self._gone_s += sum(ran_s for process, ran_s in self._known.items() if process not in seen)
        self._known = seen
        charged_s = sum(process.children_s for process in processes)
        self._has_lost_any |= self._gone_s > charged_s * 1.05 + _UNCHARGED_S
        since_s = _MAX_SAMPLE_S if self._last_sample is None else min(now - self._last_sample, _MAX_SAMPLE_S)
        self._last_sample = now
        self._busy_s += since_s * min(1.0, sum(process.share for process in processes if process.is_running))

    @property
    def seconds(self) -> float:
        """CPU seconds so far, as if one core was used; 0 while all sampled time is charged to a process."""
        return self._busy_s if self._has_lost_any else 0.0


class _Stat(NamedTuple):
    """A process: when it started, in ticks; CPU seconds of its own and of the children it waited for.

    `ran_s` is the time of its first thread alone, but exact. `share` is the part of this thread's ready time in which
    it had a core.
    """

    pid: int
    start: int
    own_s: float
    children_s: float
    ran_s: float
    share: float
    is_running: bool


def _stat_of(pid: int) -> _Stat:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    own_s, children_s = (sum(map(int, pair)) / _TICKS_PER_SECOND for pair in (fields[11:13], fields[13:15]))
    ran_s, share = own_s, 1.0
    if HAS_DELAYS:
        ran_ns, waited_ns, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
        ran_s, share = ran_ns / 1e9, ran_ns / (ran_ns + waited_ns) if ran_ns else 0.0
    return _Stat(pid, int(fields[19]), own_s, children_s, ran_s, share, fields[0] == "R")


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and the children it waited for; 0 once it has ended."""
    try:
        stat = _stat_of(pid)
    except (OSError, LookupError, ValueError):
        return 0.0
    return max(stat.own_s, stat.ran_s) + stat.children_s


def _delay_ns(pid: int, task: str) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None


def descendants(root: int) -> Iterator[int]:
    """Yield all processes below `root`, itself excluded, as far as one sample shows."""
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
        """Take in one process. Raises OSError: it has ended."""
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
