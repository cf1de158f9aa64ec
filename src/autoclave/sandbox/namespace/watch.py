"""What the processes of a cell use right now, read from the host's /proc: out of the program's reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds of the living and of those they waited for, memory with shared pages split, number of processes."""

    cpu_s: float
    memory_mb: float
    num_processes: int


def usage_below(first_process: int) -> Usage:
    """Sum over all descendants of `first_process`, itself excluded. A process that ends meanwhile is left out."""
    cpu_s, memory_bytes, count = 0.0, 0, 0
    for pid in _descendants(first_process):
        try:
            cpu_s += cpu_seconds(pid)
            memory_bytes += _memory_bytes(pid)
        except (OSError, IndexError, ValueError):
            continue
        count += 1
    return Usage(cpu_s, memory_bytes / 2**20, count)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and the children it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND


def _descendants(root: int) -> Iterator[int]:
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


def _memory_bytes(pid: int) -> int:
    """Proportional set size with swap; where it may not be read, the resident pages that are not shared."""
    try:
        summary = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except PermissionError:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * _PAGE_BYTES
    return sum(int(line.split()[1]) for line in summary.splitlines() if line.startswith(("Pss:", "SwapPss:"))) << 10
