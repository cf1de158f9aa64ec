"""Memory for two versions of all weights, which one process writes and others map: a swap of weights copies nothing.

The memory is an anonymous file (memfd) of its writer. Others open it through `/proc/PID/fd/N`, which needs no channel
that passes descriptors and no name in a file system: when the last process that maps it ends, however it ends, the
memory is free. It is allocated at once, so a machine that lacks it says so here, and not in the middle of a run.

Samplers compute with views of a slot, so it must not change while they do; `control` sees to that. They map it for
reading only: a write to published weights, which others share, ends the process that tries.
"""

from __future__ import annotations

import mmap
import os
import secrets
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from autoclave.core import HostError
from autoclave.workers.weights.control import CONTROL_BYTES, Control
from autoclave.workers.weights.table import WeightTable
from autoclave.workers.wire import Descriptor


@cache
def this_host() -> str:
    """Equal for processes that can open each other's memory: one kernel, and one name space of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a memory: a descriptor of a process of a host. The token tells it from another that came later."""

    host: str
    process: int
    descriptor: int
    token: str


class WeightMemory:
    """Slots for the weights of `table`. Made by the writer (`create`), mapped by readers (`open`)."""

    def __init__(self, table: WeightTable, file: Descriptor, address: Address, slots: tuple[Tensor, ...]) -> None:
        """Of `create` and `open`; `slots` are (num_bytes,) uint8 each."""
        self.table, self.address, self.slots = table, address, slots
        self._file = file
        self.control = Control(np.frombuffer(mmap.mmap(file.number, CONTROL_BYTES), dtype=np.uint8))
        self._views: dict[int, dict[str, Tensor]] = {}

    @staticmethod
    def create(table: WeightTable, num_slots: int = 2, device: torch.device | None = None) -> WeightMemory:
        """An empty memory, of this process; on a GPU, `device`, only the control block is in the memory of the host.

        Raises:
            HostError: there is too little memory.
        """
        is_on_host = device is None or device.type == "cpu"
        size = CONTROL_BYTES + (num_slots * table.num_bytes if is_on_host else 0)
        file = Descriptor(os.memfd_create("autoclave-weights", os.MFD_CLOEXEC))
        try:
            os.posix_fallocate(file.number, 0, size)
        except OSError as error:
            raise HostError(
                f"no memory for {num_slots} copies of the weights to publish, {size / 2**30:.2f} GiB ({error.strerror})"
            ) from None
        if is_on_host:
            slots = _slots_in(file, table, num_slots, mmap.PROT_READ | mmap.PROT_WRITE)
        else:
            slots = tuple(torch.empty((num_slots, table.num_bytes), dtype=torch.uint8, device=device))
        address = Address(this_host(), os.getpid(), file.number, secrets.token_hex(16))
        memory = WeightMemory(table, file, address, slots)
        memory.control.set_up(address.token, num_slots)
        return memory

    @staticmethod
    def open(
        table: WeightTable, address: Address, *, slots: tuple[Tensor, ...] | None = None, is_writer: bool = False
    ) -> WeightMemory:
        """The memory at `address`, for reading, or as one of several that write it; `slots` if these are on a GPU.

        Raises:
            HostError: it cannot be opened: it is on another host, its owner has ended, or is another user's.
        """
        file = _opened(address)
        control = Control(np.frombuffer(mmap.mmap(file.number, CONTROL_BYTES), dtype=np.uint8))
        control.require(address.token)
        if slots is None:
            access = mmap.PROT_READ | (mmap.PROT_WRITE if is_writer else 0)
            slots = _slots_in(file, table, control.num_slots, access)
        return WeightMemory(table, file, address, slots)

    def views(self, slot: int) -> dict[str, Tensor]:
        """The weights in a slot, by all their names."""
        if slot not in self._views:
            self._views[slot] = self.table.views(self.slots[slot])
        return self._views[slot]


def _opened(address: Address) -> Descriptor:
    fix = "Fix: let the run choose how it publishes, and attach samplers anew when a trainer was restarted"
    if address.host != this_host():
        raise HostError(f"the memory of the published weights is on another host, or in another container. {fix}")
    try:
        path = f"/proc/{address.process}/fd/{address.descriptor}"
        return Descriptor(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise HostError(
            f"the memory of the published weights, of process {address.process}, cannot be opened ({error.strerror}). "
            f"{fix}"
        ) from None


def _slots_in(file: Descriptor, table: WeightTable, num_slots: int, access: int) -> tuple[Tensor, ...]:
    if not table.num_bytes:
        return (torch.empty(0, dtype=torch.uint8),) * num_slots
    mapped = mmap.mmap(file.number, num_slots * table.num_bytes, prot=access, offset=CONTROL_BYTES)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # which is what is wanted
        return tuple(torch.frombuffer(mapped, dtype=torch.uint8).view(num_slots, table.num_bytes))
