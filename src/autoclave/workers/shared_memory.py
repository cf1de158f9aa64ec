"""Packed values in memory that several processes of this machine share. It has no name, so a crash leaves nothing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from autoclave.workers.wire import Held, Message

ALIGNMENT = 64
"""Buffers begin at multiples of this, so that vector instructions work on whole cache lines."""


class Descriptor:
    """An open file descriptor that is closed when nobody refers to it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@dataclass(frozen=True)
class Parcel(Held):
    """A packed value whose large arrays lie one after the other in an anonymous file.

    Sending one to another process of this machine copies the small part only.
    """

    body: bytes
    sizes: tuple[int, ...]
    memory: Descriptor | None = field(default=None)
    """None if there is no large array."""

    @staticmethod
    def of(message: Message) -> Parcel:
        """`message`, with its buffers copied into shared memory."""
        sizes = tuple(buffer.nbytes for buffer in message.buffers)
        if not sizes:
            return Parcel(message.body, ())
        memory = Descriptor(os.memfd_create("autoclave", os.MFD_CLOEXEC))
        os.ftruncate(memory.number, _offsets(sizes)[-1])
        for buffer, offset in zip(message.buffers, _offsets(sizes), strict=False):
            _write(memory.number, buffer, offset)
        return Parcel(message.body, sizes, memory)

    def fetch(self) -> Any:
        """The value. Its large arrays are copied where they are written to; nobody else sees that."""
        if self.memory is None:
            return Message(self.body, ()).fetch()
        whole = np.frombuffer(
            mmap.mmap(self.memory.number, _offsets(self.sizes)[-1], access=mmap.ACCESS_COPY), dtype=np.uint8
        )
        places = zip(_offsets(self.sizes), self.sizes, strict=False)
        return Message(self.body, tuple(whole[offset : offset + size] for offset, size in places)).fetch()


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Offset of each buffer, and the length of all."""
    return list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))


def _write(descriptor: int, buffer: np.ndarray, offset: int) -> None:
    rest = memoryview(buffer)  # pyright: ignore[reportArgumentType]  arrays are buffers; the stubs learn it in 3.12
    while rest:  # one call writes at most 2 GiB
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
