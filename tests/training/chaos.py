"""Kills processes of ours with -9, and stops others for a while, at random, while something else goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Role:
    """Processes that can be struck."""

    processes: Callable[[], Sequence[int]]
    """Their numbers now."""
    share: float
    """How often this role is chosen, as a weight."""
    stop_s: float
    """One of four is stopped instead of killed, for at most so many seconds."""


class Chaos:
    """To be entered while processes may be struck."""

    def __init__(self, roles: Mapping[str, Role], *, seed: int, chance: float) -> None:
        """`chance` is that of a strike each time that `perhaps` is called; `seed` is of all that is drawn."""
        self._roles, self._chance = roles, chance
        self._draw, self._aim = random.Random(seed), random.Random(seed)
        self._due: queue.SimpleQueue[tuple[float, str, float | None] | None] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="chaos")
        self.strikes: Counter[str] = Counter()
        """How many were killed and stopped, by role."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._due.put(None)
        self._thread.join()

    def perhaps(self) -> None:
        """Perhaps strike somebody, a little later; one after the other."""
        if self._draw.random() < self._chance:
            (role,) = self._draw.choices(list(self._roles), [role.share for role in self._roles.values()])
            stop_s = self._draw.uniform(0, self._roles[role].stop_s) if self._draw.random() < 0.25 else None
            self._due.put((self._draw.expovariate(4), role, stop_s))

    def _work(self) -> None:
        while (due := self._due.get()) and not self._is_over.wait(due[0]):
            _, role, stop_s = due
            if processes := self._roles[role].processes():
                self._strike(role, self._aim.choice(processes), stop_s)

    def _strike(self, role: str, process: int, stop_s: float | None) -> None:
        with contextlib.suppress(ProcessLookupError), _handle_of(process) as handle:
            if process not in descendants():
                return  # it has ended, and its number is somebody else's
            if stop_s is None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                self.strikes[f"{role} killed"] += 1
                return
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
            self.strikes[f"{role} stopped"] += 1
            self._is_over.wait(stop_s)
            signal.pidfd_send_signal(handle, signal.SIGCONT)


@contextlib.contextmanager
def _handle_of(process: int) -> Generator[int]:
    """What signals go to, also when another process has its number."""
    handle = os.pidfd_open(process)
    try:
        yield handle
    finally:
        os.close(handle)


def descendants() -> dict[int, tuple[int, str]]:
    """The processes that this one has started, and those that they have: generation, and command line."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found: dict[int, tuple[int, str]] = {}
    for process in parents:
        line = [process]
        while line[-1] in parents and line[-1] != os.getpid():
            line.append(parents[line[-1]])
        if line[-1] == os.getpid() and len(line) > 1:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
                found[process] = len(line) - 1, command.decode(errors="replace")
    return found
