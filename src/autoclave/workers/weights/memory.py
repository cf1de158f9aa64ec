"""Memory for two versions of all weights, which one process writes and others map: a swap of weights copies nothing.

The memory is an anonymous file (memfd) of its writer. Others open it through `/proc/PID/fd/N`, which needs no channel
that passes descriptors and no name in a file system: when the last process that maps it ends, however it ends, the
memory is free. It is allocated at once, so a machine that lacks it says so here, and not in the middle of a run.

Samplers compute with views of a slot, so it must not change while they do; `control` sees to that. They map it for
reading only: a write to published weights, which others share, ends the process that tries.

On a GPU only the control block is in the memory of the host; readers of other processes open the slots by CUDA IPC.
"""

import mmap
import os
import secrets
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

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
    handles: list[Any] | None = None
    """Of the slots, if these are on a GPU."""


class WeightMemory:
    """Slots for the weights of `table`. Made by the writer (`create`), mapped by readers (`open`)."""

    def __init__(self, table: WeightTable, file: Descriptor, address: Address, slots: tuple[Tensor, ...]) -> None:
        """Of `create` and `open`; `slots` are (num_bytes,) uint8 each."""
        self.table, self.address, self.slots = table, address, slots
        self._file = file
        self.control = Control(np.frombuffer(mmap.mmap(file.number, CONTROL_BYTES), dtype=np.uint8))
        self._views: dict[int, dict[str, Tensor]] = {}

    @staticmethod
    def create(table: WeightTable, num_slots: int = 2, device: torch.device | None = None) -> "WeightMemory":
        """An empty memory, of this process; on a GPU, `device`, only the control block is in the memory of the host.

        Raises HostError: there is too little memory.
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
        token = secrets.token_hex(16)
        handles = None if is_on_host else _shared(token, slots)
        address = Address(this_host(), os.getpid(), file.number, token, handles)
        memory = WeightMemory(table, file, address, slots)
        memory.control.set_up(address.token, num_slots)
        return memory

    @staticmethod
    def open(table: WeightTable, address: Address, *, is_writer: bool = False) -> "WeightMemory":
        """The memory at `address`, for reading, or as one of several that write it.

        Raises HostError: it cannot be opened: it is on another host, its owner has ended, is another user's, or the
        driver of the GPU does not open it.
        """
        file = _opened(address)
        control = Control(np.frombuffer(mmap.mmap(file.number, CONTROL_BYTES), dtype=np.uint8))
        control.require(address.token)
        if address.handles is not None:
            return WeightMemory(table, file, address, _opened_slots(address.token, address.handles))
        access = mmap.PROT_READ | (mmap.PROT_WRITE if is_writer else 0)
        return WeightMemory(table, file, address, _slots_in(file, table, control.num_slots, access))

    def views(self, slot: int) -> dict[str, Tensor]:
        if slot not in self._views:
            self._views[slot] = self.table.views(self.slots[slot])
        return self._views[slot]


def _opened(address: Address) -> Descriptor:
    fix = "Fix: let the run choose how it publishes, and attach samplers again when a trainer was restarted"
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


_OWN: WeakValueDictionary[str, Tensor] = WeakValueDictionary()
"""Slots of this process by token: CUDA does not open what the same process has made."""


def _shared(token: str, slots: tuple[Tensor, ...]) -> list[Any]:
    """Handles by which `_opened_slots` finds `slots`, which must live as long as they are used anywhere."""
    from torch.multiprocessing.reductions import reduce_tensor  # loads much, and few processes come here

    for number, slot in enumerate(slots):
        _OWN[f"{token}/{number}"] = slot
    return [reduce_tensor(slot) for slot in slots]


def _opened_slots(token: str, handles: list[Any]) -> tuple[Tensor, ...]:
    own = [_OWN.get(f"{token}/{number}") for number in range(len(handles))]
    if all(slot is not None for slot in own):
        return tuple(slot for slot in own if slot is not None)
    try:
        return tuple(rebuild(*arguments) for rebuild, arguments in handles)
    except RuntimeError as error:
        raise HostError(f"published weights on a GPU cannot be opened by CUDA IPC ({error})") from None


def settle(device: torch.device) -> None:
    """Wait until what was written to the device is there for other processes."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
