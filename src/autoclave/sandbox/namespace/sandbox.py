"""`NamespaceSandbox`: a cell for each program, from a small stock of warm zygotes."""

from __future__ import annotations

import threading

from autoclave.config.sandbox import Level
from autoclave.core import Program, SandboxFault
from autoclave.sandbox.interface import Limits, Profile, Runner
from autoclave.sandbox.namespace.cell import NamespaceCell
from autoclave.sandbox.namespace.identity import new_identity
from autoclave.sandbox.namespace.root import base_interpreter, root_plan
from autoclave.sandbox.namespace.zygote import Zygote

_MAX_IDLE = 4


class NamespaceSandbox:
    """Sealed cells from Linux namespaces. Each open cell has a zygote to itself; idle ones are kept warm."""

    level: Level = "sealed"

    def __init__(self) -> None:
        self._plan = root_plan(base_interpreter())
        self._lock = threading.Lock()
        self._idle: list[Zygote] = []
        self._busy: set[Zygote] = set()
        self._is_closed = False

    def open(self, program: Program, profile: Profile, limits: Limits, runner: Runner) -> NamespaceCell:
        zygote = self._take(profile)
        try:
            pid, connection = zygote.open(runner)
        except BaseException:
            self._discard(zygote)
            raise
        return NamespaceCell(pid, connection, limits, program, lambda is_sound: self._end_cell(zygote, is_sound))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            zygotes = [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
        for zygote in zygotes:
            zygote.kill()

    def _take(self, profile: Profile) -> Zygote:
        with self._lock:
            if self._is_closed:
                raise SandboxFault("the sandbox is closed")
            for zygote in self._idle:
                if zygote.profile == profile:
                    self._idle.remove(zygote)
                    self._busy.add(zygote)
                    return zygote
        zygote = Zygote(self._plan, new_identity(), profile)
        with self._lock:
            if not self._is_closed:
                self._busy.add(zygote)
                return zygote
        zygote.kill()
        raise SandboxFault("the sandbox is closed")

    def _end_cell(self, zygote: Zygote, is_sound: bool) -> int | None:
        """Have the cell killed and keep the zygote, or end both."""
        if is_sound:
            try:
                status = zygote.close_cell()
            except SandboxFault:
                is_sound = False
            else:
                self._give_back(zygote)
                return status
        self._discard(zygote)
        return None

    def _give_back(self, zygote: Zygote) -> None:
        with self._lock:
            self._busy.discard(zygote)
            self._idle.append(zygote)
            surplus = self._idle.pop(0) if len(self._idle) > _MAX_IDLE or self._is_closed else None
        if surplus:
            surplus.kill()

    def _discard(self, zygote: Zygote) -> None:
        with self._lock:
            self._busy.discard(zygote)
        zygote.kill()


_PROBE_PROFILE = Profile("probe")
_PROBE_RUNNER = Runner("probe", "import os\ndef run(test):\n    exec(test.program)\n    os._exit(0)\n")
_PROBE_LIMITS = Limits(cpu_s=10, wall_s=60, memory_mb=256, output_bytes=4096, processes=8, disk_mb=1, open_files=16)


def try_sealed_cell() -> None:
    """Start a cell and run a program in it.

    Raises:
        HostError: the interpreter does not start.
        SandboxFault: no cell could be made, or it does not work.
    """
    sandbox = NamespaceSandbox()
    try:
        program = Program("import os; os.write(1, b'sealed')")
        with sandbox.open(program, _PROBE_PROFILE, _PROBE_LIMITS, _PROBE_RUNNER) as cell:
            outcome = cell.run(b"")
        if outcome.stdout != b"sealed":
            raise SandboxFault(f"the probe ended with {outcome.ended}, exit code {outcome.exit_code}")
    finally:
        sandbox.close()
