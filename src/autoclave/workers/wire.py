"""Values as bytes, between the driver and worker processes that it started: large arrays stand beside the rest.

Tensors travel as numpy arrays and arrive on the CPU, without gradient. What arrives belongs to the receiver alone.
Only what our own processes sent over a channel of ours may be unpacked: it is pickle, with arrays out of band.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle  # noqa: TID251  between our own processes only; see above
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


IN_BAND_BYTES = 1 << 14
"""Arrays up to this size stand among the other bytes."""

_TENSORS = {("torch", "Tensor"), ("torch.nn.parameter", "Parameter")}
"""Known by name: where there are none, torch is not loaded."""


class Held(ABC):
    """A value that stays where it was made until someone asks for it."""

    @abstractmethod
    def fetch(self) -> Any:
        """The value itself. Raises WorkerDied: it was lost with the process that held it."""


@dataclass(frozen=True)
class Message(Held):
    """A packed value: `body`, and large arrays as (n,) uint8, which may share memory with the value."""

    body: bytes
    buffers: tuple[np.ndarray, ...]

    def fetch(self) -> Any:
        """The value; its arrays are writable views of the buffers if those are writable, else copies."""
        buffers = (buffer if buffer.flags.writeable else buffer.copy() for buffer in self.buffers)
        return pickle.loads(self.body, buffers=buffers)


def pack(value: Any) -> Message:
    """`value` as bytes. Raises TypeError: something in it cannot be sent, such as a lambda or an open file."""
    body = io.BytesIO()
    buffers: list[np.ndarray] = []

    def stays_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), dtype=np.uint8)
        if raw.nbytes > IN_BAND_BYTES:
            buffers.append(raw)
        return raw.nbytes <= IN_BAND_BYTES

    try:
        _Pickler(body, protocol=5, buffer_callback=stays_in_band).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"{_named(value)} cannot be sent to another process ({error}); functions and classes must be "
            "importable by name: no lambda, nothing local, nothing of __main__"
        ) from error
    return Message(body.getvalue(), tuple(buffers))


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if (type(obj).__module__, type(obj).__qualname__) in _TENSORS:
            return _reduced(obj)
        if getattr(obj, "__module__", None) == "__main__" and isinstance(obj, (type, Callable)):
            raise pickle.PicklingError(f"{_named(obj)} is defined in __main__")
        return NotImplemented


def _reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    import torch

    host = tensor.detach().cpu().contiguous()
    try:
        return _tensor, (host.numpy(), None)
    except TypeError:  # bfloat16 and the 8-bit floats, which numpy does not have
        integers = {1: torch.int8, 2: torch.int16}[host.element_size()]
        return _tensor, (host.view(integers).numpy(), host.dtype)


def _tensor(array: np.ndarray, dtype: torch.dtype | None) -> Tensor:
    import torch

    tensor = torch.from_numpy(array)
    return tensor if dtype is None else tensor.view(dtype)


def _named(value: Any) -> str:
    return getattr(value, "__qualname__", f"a {type(value).__name__}")


ALIGNMENT = 64
"""Buffers begin at multiples of this, so that vector instructions work on whole cache lines."""


class Descriptor:
    """An open file descriptor that is closed with the last reference to it."""

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
        """The value. Its large arrays are copied on write; other processes do not see the writes."""
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
