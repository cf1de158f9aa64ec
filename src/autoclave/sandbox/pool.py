"""`ZygotePool`: the sandbox of every backend. A cell for each program, from a small stock of warm zygotes."""

from __future__ import annotations

import contextlib
import threading

from autoclave.config.levels import Level
from autoclave.core import SandboxFault
from autoclave.sandbox.cell import ZygoteCell
from autoclave.sandbox.interface import Limits, Profile, Runner
from autoclave.sandbox.launch import Launcher
from autoclave.sandbox.zygote import Zygote

_MAX_IDLE = 4


class ZygotePool:
    """A `Sandbox`. Each open cell has a zygote to itself; idle ones are kept warm."""

    def __init__(self, launcher: Launcher) -> None:
        self.level: Level = launcher.level
        self._launcher = launcher
        self._lock = threading.Lock()
        self._idle: list[Zygote] = []
        self._busy: set[Zygote] = set()
        self._is_closed = False

    def open(self, content: bytes, profile: Profile, limits: Limits, runner: Runner) -> ZygoteCell:
        return ZygoteCell(lambda: _Lease(self, self._take(profile)), content, limits, runner)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            zygotes = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for zygote in zygotes:
            zygote.kill()

    def _take(self, profile: Profile) -> Zygote:
        while idle := self._take_idle(profile):
            try:
                idle.settle()
            except SandboxFault:  # e.g. the last cell's memory was its end: another one serves as well
                self.discard(idle)
            else:
                return idle
        zygote = Zygote(self._launcher.launch(profile), profile)
        with self._lock:
            if not self._is_closed:
                self._busy.add(zygote)
                return zygote
        zygote.kill()
        raise SandboxFault("the sandbox is closed")

    def _take_idle(self, profile: Profile) -> Zygote | None:
        with self._lock:
            if self._is_closed:
                raise SandboxFault("the sandbox is closed")
            for zygote in self._idle:
                if zygote.profile == profile:
                    self._idle.remove(zygote)
                    self._busy.add(zygote)
                    return zygote
        return None

    def give_back(self, zygote: Zygote) -> None:
        """Keep a zygote for another cell."""
        with self._lock:
            self._busy.discard(zygote)
            self._idle.append(zygote)
            surplus = self._idle.pop(0) if len(self._idle) > _MAX_IDLE or self._is_closed else None
        if surplus:
            surplus.kill()

    def discard(self, zygote: Zygote) -> None:
        """End a zygote that is not to be trusted any more."""
        with self._lock:
            self._busy.discard(zygote)
        zygote.kill()


class _Lease:
    """A zygote for the time of one cell."""

    def __init__(self, pool: ZygotePool, zygote: Zygote) -> None:
        self._pool = pool
        self.zygote = zygote

    def end(self) -> None:
        try:
            self.zygote.close_cell()
        except SandboxFault:
            self._pool.discard(self.zygote)
        else:
            self._pool.give_back(self.zygote)

    def abandon(self) -> int | None:
        status = None
        with contextlib.suppress(SandboxFault):
            self.zygote.close_cell()
            status = self.zygote.wait_status()
        self._pool.discard(self.zygote)
        return status
