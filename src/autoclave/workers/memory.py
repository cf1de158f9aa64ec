"""Peak memory of a worker, as the kernel and the driver of the device count it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from autoclave.workers.dispatch import Dispatch, register

_STATUS = Path("/proc/self/status")


def _resident(field: str) -> int:
    """Bytes. VmHWM is that of this program; what `getrusage` gives may be the parent's, from before it was started."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


_LIBRARIES = _resident("VmRSS")
"""Resident when this module was loaded: before any model, and after the tensor libraries wherever workers are made by
`compose`, which imports models first."""


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """Most bytes that the process of a worker has held so far."""

    resident: int
    """Main memory, libraries included."""
    grown: int
    """Of that, what came after the libraries: models, and what is computed with them."""
    device: int
    """Memory of its GPU that held tensors; 0 on a CPU."""
    process: int
    """Its number, by which workers of one process can be told: inline all are the driver's."""

    @property
    def counted(self) -> int:
        """Memory that a plan counts: that of the GPU, or without one the growth of the process."""
        return self.device or self.grown


class MeasuresMemory:
    """A worker that says how much memory it has taken."""

    @register(Dispatch.ALL_TO_LIST)
    def peak_memory(self) -> MemoryPeak:
        resident = _resident("VmHWM")
        return MemoryPeak(resident, max(0, resident - _LIBRARIES), _of_device(), os.getpid())


def _of_device() -> int:
    """The most bytes of the GPU that held tensors; 0 where this process has not used one."""
    torch = sys.modules.get("torch")
    return torch.cuda.max_memory_allocated() if torch and torch.cuda.is_initialized() else 0
