"""Outcome of one run of a program, as seen from outside of it, and the one table of its limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from errno import EAGAIN, EDQUOT, EFBIG, EMFILE, ENOMEM, ENOSPC
from resource import RLIMIT_AS, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC
from signal import SIGXFSZ
from typing import NamedTuple, Self

from autoclave.core.errors import SandboxFault
from autoclave.core.verdict import Status

_MB = 1 << 20
_FULL = (ENOSPC, EDQUOT, EFBIG)


class Limit(NamedTuple):
    """One limit, wherever it appears: its field of `sandbox.Limits`, and the verdict on a test that it ended.

    `errnos` are of calls that fail by it, so that a cell's account may name it; `signal` is what ends a process by it.
    `kernel` is the limit of the kernel behind it: `RLIMIT_...`, then factor and margin from the field to its value.
    """

    setting: str
    status: Status
    message: str
    errnos: tuple[int, ...] = ()
    kernel: tuple[int, int, int] | None = None
    signal: int | None = None

    @property
    def failure(self) -> tuple[Status, str]:
        return self.status, self.message


class Ended(StrEnum):
    """End of a run: by itself, by a signal that no limit explains, or by a limit.

    The kernel's limit of CPU time is for a judge that died: where a kernel counts it in ticks, a process on a busy
    machine seems to use half as much again as it does. That of memory has room for the interpreter's own maps, and for
    large thread stacks that are reserved but not used.
    """

    limit: Limit | None

    def __new__(cls, name: str, limit: Limit | None = None) -> Self:
        """Make a member that is equal to its name."""
        member = str.__new__(cls, name)
        member._value_, member.limit = name, limit
        return member

    EXITED = "exited"
    SIGNALLED = "signalled"
    CPU_TIME = "cpu_time", Limit("cpu_s", Status.TIME_LIMIT, "CPU time limit", (), (RLIMIT_CPU, 2, 10))
    WALL_TIME = "wall_time", Limit("wall_s", Status.TIME_LIMIT, "wall time limit (it slept or waited)")
    MEMORY = "memory", Limit("memory_mb", Status.MEMORY_LIMIT, "memory limit", (ENOMEM,), (RLIMIT_AS, _MB, 640 * _MB))
    OUTPUT = "output", Limit("output_bytes", Status.OUTPUT_LIMIT, "output limit")
    PROCESSES = "processes", Limit("processes", Status.RUNTIME_ERROR, "process limit", (EAGAIN,), (RLIMIT_NPROC, 1, 0))
    DISK = "disk", Limit("disk_mb", Status.RUNTIME_ERROR, "disk limit", _FULL, (RLIMIT_FSIZE, _MB, 0), SIGXFSZ)
    OPEN_FILES = (
        "open_files",
        Limit("open_files", Status.RUNTIME_ERROR, "open files limit", (EMFILE,), (RLIMIT_NOFILE, 1, 0)),
    )


LIMITS: Mapping[str, Limit] = {ended: ended.limit for ended in Ended if ended.limit}
LIMIT_OF_ERRNO: Mapping[int, str] = {number: str(name) for name, limit in LIMITS.items() for number in limit.errnos}


def limit_named(account: str) -> Ended | None:
    """The limit that the first word of a cell's account names; None for `-` and for an empty account.

    Raises SandboxFault: there is no such limit, or none that shows as a failed call.
    """
    name = account.partition(" ")[0]
    if name in ("", "-"):
        return None
    if name not in LIMIT_OF_ERRNO.values():
        known = ", ".join(dict.fromkeys(LIMIT_OF_ERRNO.values()))
        raise SandboxFault(f"account of a test: names the limit {name!r}; must be one of {known}, or -")
    return Ended(name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one run. `stdout` and `stderr` are capped; the bytes cut off are counted as far as they were read.

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
