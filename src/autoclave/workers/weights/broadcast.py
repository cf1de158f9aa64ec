"""Flat buckets from one process to several, by a process group of their own: NCCL between GPUs, gloo between CPUs.

The group is made of objects, not of the default group of a process, which the ranks of an FSDP2 trainer have already.
Its members are those who read one publish; when others come, they make another.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed import BroadcastOptions, PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

BUCKET_BYTES = 256 << 20
"""Most bytes of one broadcast, unless a weight is larger."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Store at which the members of a group meet, and their number; `name` is no other's at the same store."""

    address: str
    port: int
    name: str
    size: int
    deadline_s: float


def open_store() -> TCPStore:
    """A store that meetings can take place at, on a free port of this machine."""
    return TCPStore(_own_address(), 0, is_master=True, wait_for_workers=False)


def _own_address() -> str:
    """By which other machines reach this one: that of the interface that leads outside. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sync_check:
        try:
            sync_check.connect(("192.0.2.1", 9))  # an address for documentation
        except OSError:
            return "127.0.0.1"  # there is no outside
        return sync_check.getsockname()[0]


class BroadcastGroup:
    """One member. Member 0 sends."""

    def __init__(
        self, rendezvous: Rendezvous, member: int, device: torch.device, store: TCPStore | None = None
    ) -> None:
        """Meet the others; returns when all are there. `store` is that of the process that opened it.

        Raises RuntimeError: they are not, after the deadline.
        """
        timeout = timedelta(seconds=rendezvous.deadline_s)
        reached = store or TCPStore(rendezvous.address, rendezvous.port, is_master=False, timeout=timeout)
        self._group = _backend(
            PrefixStore(f"weights/{rendezvous.name}", reached), member, rendezvous.size, device, timeout
        )
        self._device = device

    def broadcast(self, buffer: Tensor, buckets: Sequence[tuple[int, int]]) -> None:
        """Fill `buffer` of every member, (num_bytes,) uint8, with that of member 0, piece by piece.

        Raises RuntimeError: a member has gone, or does not come.
        """
        options = BroadcastOptions()
        options.rootRank = 0
        works = [self._group.broadcast([buffer[start:stop]], options) for start, stop in buckets]
        for work in works:
            work.wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # on NCCL `wait` only orders streams


def _backend(store: PrefixStore, member: int, size: int, device: torch.device, timeout: timedelta) -> Any:
    if device.type == "cuda":
        options = torch.distributed.ProcessGroupNCCL.Options()
        options._timeout = timeout
        torch.cuda.set_device(device)
        return torch.distributed.ProcessGroupNCCL(store, member, size, options)
    return torch.distributed.ProcessGroupGloo(store, member, size, timeout)
