"""The weights of a model in training, where they are: whole, sharded over ranks, or changed by an adapter.

Each rank writes the rows that it holds straight into the memory of a publish, so that nothing is gathered and nothing
is copied twice. Only where ranks are on several machines does rank 0 write all, and gather each weight for it.
"""

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from autoclave.models import Digest, WeightShard, adapter_scale, added, digests, is_of_adapter, parts_of
from autoclave.workers.trainer.peers import this_rank
from autoclave.workers.trainer.sharding import whole
from autoclave.workers.weights.table import Weight, WeightTable

ALL = slice(None)

MAX_COPIERS = 4
"""Threads of one copy: it is over soon, and a few use all that a memory can deliver."""
_PIECE_BYTES = 16 << 20
"""Bytes from which a thread of its own pays off."""


@dataclass(frozen=True, slots=True)
class Source:
    """One weight by all its names: `base`, and A and B of an adapter with their scale if one changes it."""

    names: tuple[str, ...]
    base: Tensor
    adapter: tuple[Tensor, Tensor] | None = None
    scale: float = 0.0

    @property
    def weight(self) -> Weight:
        return Weight(self.names, self.base.dtype, tuple(self.base.shape))

    @property
    def is_plain(self) -> bool:
        """True if it is a tensor that others could use as it is."""
        return self.adapter is None and not isinstance(self.base, DTensor)

    def part(self, *, gathers: bool) -> tuple[Tensor, slice] | None:
        """Part of it that this rank publishes, and the rows of that part; None if others publish it. Of all ranks.

        Each rank publishes the rows that it holds; with `gathers`, rank 0 everything.
        """
        get = whole if gathers else _local
        adapter = (whole(self.adapter[0]), get(self.adapter[1])) if self.adapter else None
        base = get(self.base)  # each rank needs all of A, which is a few rows
        rows = (None if this_rank() else ALL) if gathers else _own_rows(self.base)
        if rows is None:
            return None
        return (added(base, *adapter, scale=self.scale) if adapter else base), rows


def sources_of(model: nn.Module, *, adapter_only: bool = False) -> list[Source]:
    """The weights of `model` by the names of a model without adapters, which are added in; each once.

    With `adapter_only` the weights of its adapters instead, by the names that they have in it. They are the parameters
    themselves, so what is found here holds for as long as the model keeps these.
    """
    state: Mapping[str, Tensor] = model.state_dict(keep_vars=True)
    if adapter_only:
        return [Source((name,), state[name]) for name in state if is_of_adapter(name)]
    scale = adapter_scale(model)
    parts = list(parts_of(state))
    names_of: dict[int, list[str]] = {}
    for part in parts:
        names_of.setdefault(id(state[part.base]), []).append(part.name)
    found: list[Source] = []
    for part in parts:
        names = tuple(names_of[id(state[part.base])])
        if names[0] == part.name:
            adapter = (state[part.adapter[0]], state[part.adapter[1]]) if part.adapter else None
            found.append(Source(names, state[part.base], adapter, scale))
    return found


@torch.no_grad()
def write_sources(sources: Iterable[Source], places: Mapping[str, Tensor], *, gathers: bool) -> None:
    """Write the weights to `places` by name; with `gathers` rank 0 writes all. Of all ranks."""
    for source in sources:
        if part := source.part(gathers=gathers):
            own, rows = part
            place = places[source.names[0]]
            copy(own, place[rows] if rows != ALL else place)


@torch.no_grad()
def gathered_weights(sources: Iterable[Source]) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Each weight by all its names, whole and in the memory of the host, one at a time; on rank 0. Of all ranks."""
    for source in sources:
        if part := source.part(gathers=True):
            yield source.names, part[0].detach().cpu()


@torch.no_grad()
def source_digests(sources: Iterable[Source], dtype: torch.dtype | None, *, gathers: bool) -> dict[str, Digest]:
    """Digests of what this rank publishes, by all names; floating-point weights as `dtype` if it is given."""
    found: dict[str, Digest] = {}
    for source in sources:
        if part := source.part(gathers=gathers):
            own, rows = part
            held = own.to(dtype) if dtype and own.is_floating_point() else own
            found |= digests(dict.fromkeys(source.names, WeightShard(held, row=rows.start or 0)))
    return found


class AdjacentWeights:
    """Weights of the host that lie side by side in one piece of memory, as a table says: a publish is one copy."""

    def __init__(self, memory: Tensor, places: Sequence[tuple[Tensor, int]]) -> None:
        """Of `of`: the memory (num_bytes,) uint8, and each weight with its address there."""
        self._memory, self._places = memory, places

    @staticmethod
    def of(sources: Sequence[Source], table: WeightTable) -> "AdjacentWeights | None":
        """Move the weights into such memory, one by one; they stay the parameters that they are.

        None, and nothing is moved, if one is not plain, not on the host, or published in another number format.
        """
        tensors = [source.base for source in sources]
        if not all(source.is_plain and source.base.device.type == "cpu" for source in sources):
            return None
        if any(tensor.dtype != entry.dtype for tensor, entry in zip(tensors, table.entries, strict=True)):
            return None
        # numpy asks for huge pages; and each weight has a storage of its own, so that saving one saves no other.
        memory = np.empty(table.num_bytes, dtype=np.uint8)
        for tensor, entry in zip(tensors, table.entries, strict=True):
            if entry.num_bytes:
                part = torch.from_numpy(memory[entry.offset : entry.offset + entry.num_bytes])
                place = part.view(entry.dtype).view(entry.shape)
                place.copy_(tensor.detach())
                tensor.data = place
        return AdjacentWeights(torch.from_numpy(memory), [(tensor, tensor.data_ptr()) for tensor in tensors])

    def write(self, slot: Tensor) -> bool:
        """Copy them to `slot` (num_bytes,) uint8; False, and nothing is done, if one has moved."""
        if any(tensor.data_ptr() != address for tensor, address in self._places):
            return False
        copy(self._memory, slot)
        return True


def copy(tensor: Tensor, place: Tensor) -> None:
    """Write `tensor` to `place`, in the number format and on the device that it has."""
    if _is_memmove(tensor, place):
        _memmove(place.data_ptr(), tensor.data_ptr(), tensor.nbytes)  # torch's copy takes a fifth longer
    else:
        place.copy_(tensor)


def _memmove(to: int, source: int, size: int) -> None:
    """Copy `size` bytes between two addresses; by several threads if there are many."""
    copiers = min(MAX_COPIERS, len(os.sched_getaffinity(0)), -(-size // _PIECE_BYTES))
    if copiers < 2:
        ctypes.memmove(to, source, size)
        return
    piece = -(-size // copiers)
    starts = range(0, size, piece)
    with ThreadPoolExecutor(copiers - 1) as pool:
        others = [pool.submit(ctypes.memmove, to + n, source + n, min(piece, size - n)) for n in starts[1:]]
        ctypes.memmove(to, source, piece)
    for other in others:
        other.result()


def _is_memmove(tensor: Tensor, place: Tensor) -> bool:
    is_plain = tensor.dtype == place.dtype and tensor.is_contiguous() and place.is_contiguous()
    return is_plain and tensor.device.type == place.device.type == "cpu"


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _own_rows(tensor: Tensor) -> slice | None:
    """The rows of `tensor` that this rank is to write; None if another rank writes the same ones, or it has none."""
    if not isinstance(tensor, DTensor):
        return ALL if this_rank() == 0 else None
    start, size = 0, tensor.shape[0] if tensor.ndim else 1
    rows = ALL
    for axis, placement in enumerate(tensor.placements):
        ranks, place = tensor.device_mesh.size(axis), tensor.device_mesh.get_local_rank(axis)
        if isinstance(placement, Replicate):
            if place:
                return None
        elif isinstance(placement, Shard) and placement.dim == 0:
            share = -(-size // ranks)  # as torch.chunk
            start, size = start + min(share * place, size), max(0, min(share, size - share * place))
            rows = slice(start, start + size)
        else:
            raise NotImplementedError(f"weights that are sharded as {placement}; FSDP2 shards rows")
    return rows if size else None
