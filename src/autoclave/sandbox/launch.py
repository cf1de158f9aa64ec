"""Protocol of a backend's launcher: start a confined zygote, and measure its cells.

The rest is the same for all backends: the protocol between judge and zygote (`zygote.py`), the cells (`pool.py`), and
the code on the far side (`guest/`).
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.config.levels import Level
from autoclave.sandbox.interface import Limits, Profile


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of the processes of a test: CPU seconds so far, memory now, number of processes now.

    `wait_s` is the time that its threads were ready to run but had no core, as far as sampled; None if unknown. Where
    no file system of limited size bounds a test, also the space of its files.
    """

    cpu_s: float
    memory_mb: float
    num_processes: int
    wait_s: float | None = None
    disk_mb: float = 0.0
    num_files: int = 0


@dataclass(frozen=True, slots=True)
class TestUsage:
    """Usage of a test that is over: CPU seconds, and most memory at a time as far as it was measured."""

    __test__ = False  # not a test class of pytest

    cpu_s: float
    peak_mb: float = 0.0


class Meter(Protocol):
    """Measures the processes of one cell from outside of it, and bounds them in the kernel where it can."""

    kills: int
    """A file whose content changes when the kernel kills a process for memory; -1 if it never does, -2 if unknown."""

    def begin_cell(self, limits: Limits) -> None:
        """Bound the cell. Its first process has not received the program yet.

        Raises SandboxFault: the kernel refuses.
        """

    def begin_test(self) -> None:
        """Start measuring: earlier usage does not count."""

    def usage(self) -> Usage:
        """Return the current usage of the running test. Of a short test nobody asks for it."""
        ...

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        """Return the usage of the test after all its processes have ended; the reaped ones used `reaped_cpu_s`."""
        ...

    def is_memory_exceeded(self) -> bool:
        """Return whether the kernel has killed a process since `begin_test` because the cell met its memory limit.

        Raises SandboxFault: the kernel did so because the host had no memory left.
        """
        ...

    def refusal_of_host(self) -> str:
        """Return what the host refused since the cell began, with the fix; empty if nothing is known."""
        ...

    def preparing_cpu_s(self) -> float:
        """CPU seconds of the first process itself."""
        ...


class Launched(Protocol):
    """A started zygote: its control socket, and the plan by which it confines itself."""

    control: socket.socket
    plan: dict[str, Any]
    """The first message to the zygote; see `guest/confinement.py`."""

    def map_ids(self) -> None:
        """Write the id maps of its user namespace. Raises SandboxFault: the kernel refuses."""

    def meter(self, first_process: Callable[[], int]) -> Meter:
        """Return the meter of the next cell. Calls `first_process`, as the zygote numbers it, when needed."""
        ...

    def last_words(self) -> str:
        """Return the last line that it printed, once it has ended."""
        ...

    def kill(self) -> None:
        """End it with all its cells and remove its files and groups. May be called again."""


class Launcher(Protocol):
    """Starts zygotes of one backend."""

    level: Level
    """Isolation of every cell."""

    def launch(self, profile: Profile) -> Launched:
        """Start a zygote that will serve this profile.

        Raises HostError: a package or path of the profile is missing on the host. SandboxFault: it cannot be started.
        """
        ...
