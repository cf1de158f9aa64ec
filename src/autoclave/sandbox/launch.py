"""Protocol of a backend's launcher: start a zygote, somewhere and somehow confined, and say how its cells are measured.

The rest is the same for all backends: the protocol between judge and zygote (`zygote.py`), the cells (`cell.py`), and
the code on the far side (`guest/`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.config.levels import Level
from autoclave.sandbox.interface import Limits, Profile


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of the processes of a test: CPU seconds so far, memory now, number of processes now.

    `wait_s` is how long its threads were ready to run but had no core, as far as that was seen; None where it cannot
    be told. Where no file system of limited size bounds a test, also what its files take.
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

    def begin_cell(self, limits: Limits) -> None:
        """Bound the cell from here on. Its first process has not got the program yet.

        Raises:
            SandboxFault: the kernel refuses.
        """
        ...

    def begin_test(self) -> None:
        """Start measuring: earlier usage does not count."""
        ...

    def usage(self) -> Usage:
        """Return the current usage of the running test."""
        ...

    def end_test(self, reaped_cpu_s: float) -> TestUsage:
        """Return the usage of the test, now that all its processes are gone; those that were reaped used so much
        CPU.
        """
        ...

    def is_memory_exceeded(self) -> bool:
        """Return whether the kernel has killed a process since `begin_test` because the cell met its memory limit.

        Raises:
            SandboxFault: it did so because the host had no memory left.
        """
        ...

    def refusal_of_host(self) -> str:
        """Return what the host itself refused since the cell began, with the fix; empty when nothing is known."""
        ...

    def preparing_cpu_s(self) -> float:
        """CPU seconds of the first process itself."""
        ...


class Launched(Protocol):
    """A zygote that was started: its control socket, and what it must be told to confine itself."""

    control: socket.socket
    plan: dict[str, Any]
    """The first message to the zygote; see `guest/confinement.py`."""

    def map_ids(self) -> None:
        """Give its user namespace the ids it asks for.

        Raises:
            SandboxFault: the kernel refuses.
        """
        ...

    def meter(self, first_process: Callable[[], int]) -> Meter:
        """Measures the next cell. Its first process, as the zygote numbers it, is asked for when it is needed."""
        ...

    def last_words(self) -> str:
        """The end of what it printed while starting, once it has ended."""
        ...

    def kill(self) -> None:
        """End it with all its cells and remove what was made for it. May be called again."""
        ...


class Launcher(Protocol):
    """Starts zygotes of one backend."""

    level: Level
    """Isolation of every cell."""

    def launch(self, profile: Profile) -> Launched:
        """Start a zygote that will serve this profile.

        Raises:
            HostError: the host lacks what the profile names.
            SandboxFault: it cannot be started.
        """
        ...
