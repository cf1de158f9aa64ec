"""The weights of a model in training, where they are: whole, sharded over ranks, or changed by an adapter.

Each rank writes the rows that it holds straight into the memory of a publish, so that nothing is gathered and nothing
is copied twice. Only where ranks are on several machines does rank 0 write all, and gather each weight for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from autoclave.models import adapter_scale, added, is_of_adapter, parts_of
from autoclave.workers.trainer.peers import this_rank
from autoclave.workers.weights.table import Weight

ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Source:
    """One weight by all its names: `base`, and A and B of an adapter with their scale if one changes it."""

    names: tuple[str, ...]
    base: Tensor
    adapter: tuple[Tensor, Tensor] | None = None
    scale: float = 0.0

    @property
    def weight(self) -> Weight:
        """What a table needs to know of it."""
        return Weight(self.names, self.base.dtype, tuple(self.base.shape))

    @property
    def is_plain(self) -> bool:
        """Whether it is a tensor that others could use as it is."""
        return self.adapter is None and not isinstance(self.base, DTensor)

    def write_rows(self, place: Tensor) -> None:
        """Write what this rank holds of it to `place`, which is for all of it. Of all ranks."""
        down = _gathered(self.adapter[0]) if self.adapter else None  # a few rows; every rank needs all of them
        rows = _own_rows(self.base)
        if rows is None:
            return
        own = _local(self.base)
        if self.adapter and down is not None:
            own = added(own, down, _local(self.adapter[1]), scale=self.scale)
        copy(own, place[rows] if rows != ALL else place)

    def write_gathered(self, place: Tensor | None) -> None:
        """Write all of it to `place`, on the rank that has one. Of all ranks."""
        whole = _gathered(self.base)
        if self.adapter:
            down, up = map(_gathered, self.adapter)
            whole = added(whole, down, up, scale=self.scale)
        if place is not None:
            copy(whole, place)


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
        if gathers:
            source.write_gathered(places[source.names[0]] if this_rank() == 0 else None)
        else:
            source.write_rows(places[source.names[0]])


def copy_plan(sources: Sequence[Source], places: Mapping[str, Tensor]) -> list[tuple[Tensor, int, int]] | None:
    """Each weight with the address and the size of its place; None unless all are plain, on the host, and in format.

    For small models, where looking at each weight at every publish takes as long as copying it.
    """
    if not all(source.is_plain for source in sources):
        return None
    plan = [(source.base, places[source.names[0]]) for source in sources]
    if not all(_is_memmove(*pair) for pair in plan):
        return None
    return [(tensor, place.data_ptr(), place.nbytes) for tensor, place in plan]


def carry_out(plan: Iterable[tuple[Tensor, int, int]]) -> None:
    """Copy the weights of a plan, as they are now; they are held as they were when it was made."""
    for tensor, place, size in plan:
        ctypes.memmove(place, tensor.data_ptr(), size)


def copy(tensor: Tensor, place: Tensor) -> None:
    """Write `tensor` to `place`, in the number format and on the device that it has."""
    if _is_memmove(tensor, place):
        ctypes.memmove(place.data_ptr(), tensor.data_ptr(), tensor.nbytes)  # torch's copy takes a fifth longer
    else:
        place.copy_(tensor)


def _is_memmove(tensor: Tensor, place: Tensor) -> bool:
    is_plain = tensor.dtype == place.dtype and tensor.is_contiguous() and place.is_contiguous()
    return is_plain and tensor.device.type == place.device.type == "cpu"


def _gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


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
