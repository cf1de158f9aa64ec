"""How one run of a program ended, as seen from outside of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ended(StrEnum):
    """Why a run is over."""

    EXITED = "exited"
    """The program ended by itself; see the exit code."""
    SIGNALLED = "signalled"
    """A signal that no limit explains ended it."""
    CPU_TIME = "cpu_time"
    """It used more CPU seconds than allowed."""
    WALL_TIME = "wall_time"
    """It took more wall-clock seconds than allowed."""
    MEMORY = "memory"
    """It asked for more memory than allowed."""
    OUTPUT = "output"
    """It printed more bytes than allowed."""
    PROCESSES = "processes"
    """It started more processes than allowed."""
    DISK = "disk"
    """It wrote more to files than allowed."""


REPORTED_LIMITS = (Ended.MEMORY, Ended.PROCESSES, Ended.DISK)
"""Limits that show as a failed call in the program, so that its own account may name them as the cause of its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended. `stdout` and `stderr` are capped; the bytes cut off are counted as far as they were read.

    `exit_code` is None unless the program exited, `signal` is None unless a signal ended it. `cpu_s` counts all
    processes of the run, as far as they were reaped or a control group counts them. `wait_s` is how long its threads
    were ready but had no core, and how long we were late to serve them; None where that was not seen. `system_s` is
    the part of `cpu_s` that the kernel took on behalf of the processes that were reaped: on a busy machine it grows.
    """

    ended: Ended
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_cut: int
    stderr_cut: int
    cpu_s: float
    wall_s: float
    memory_mb: float
    detail: str = ""
    wait_s: float | None = None
    system_s: float = 0.0
