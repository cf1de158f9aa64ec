"""Digests of weights: 64 bits for the bytes of a tensor, computed on the device that the tensor lies on.

    digest = sum over j of r(j) * sum over k of c(k) * word[j, k]   mod 2^64

`word[j, k]` is word k of row j, and r and c are fixed odd numbers. A change of one word always changes the digest; rows
that are permuted, shifted or left out change it with a chance of nearly 1. The digest of a tensor is the sum of the
digests of its shards, whichever rows and columns each rank holds.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
_CHUNK_WORDS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Words multiplied at a time: what fits a cache of the CPU, or 128 MiB of a GPU."""


class Digest(NamedTuple):
    """Digest of a tensor, and the number format that its bytes are in."""

    dtype: torch.dtype
    value: int


class WeightShard(NamedTuple):
    """Part of a weight: its rows and columns begin at `row` and `column` of the whole, which has `num_columns`."""

    tensor: Tensor
    row: int = 0
    column: int = 0
    num_columns: int | None = None
    """None: as many as the part."""


def digests(weights: Mapping[str, Tensor | WeightShard]) -> dict[str, Digest]:
    shards = {name: each if isinstance(each, WeightShard) else WeightShard(each) for name, each in weights.items()}
    tied = {name: (shard.tensor.data_ptr(), shard.tensor.shape, shard.tensor.dtype) for name, shard in shards.items()}
    found = {key: _digest(shards[name]) for name, key in reversed(tied.items())}
    values = dict(
        zip(found, torch.stack([each.cpu() for each in found.values()]).tolist() if found else (), strict=True)
    )
    return {name: Digest(shard.tensor.dtype, values[tied[name]]) for name, shard in shards.items()}


def joined_digests(parts: Iterable[Mapping[str, Digest]]) -> dict[str, Digest]:
    """Digests of whole weights from those of the shards of all ranks."""
    joined: dict[str, Digest] = {}
    for part in parts:
        for name, (dtype, value) in part.items():
            total = value + (joined[name].value if name in joined else 0)
            joined[name] = Digest(dtype, (total + (1 << 63)) % (1 << 64) - (1 << 63))  # as int64 wraps
    return joined


@torch.no_grad()
def _digest(shard: WeightShard) -> Tensor:
    tensor = shard.tensor.detach()
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if not tensor.numel():
        return total
    rows = tensor.reshape(tensor.shape[0] if tensor.ndim else 1, -1).contiguous()
    size, num_columns = rows.element_size(), shard.num_columns or rows.shape[1]
    width = next(width for width in _WORDS if num_columns * size % width == shard.column * size % width == 0)
    if rows.storage_offset() * size % width:
        rows = rows.clone()
    words = rows.view(torch.uint8).view(_WORDS[width])
    in_row = _factors(shard.column * size // width, words.shape[1], 1, tensor.device)
    of_row = _factors(shard.row, len(words), 2, tensor.device)
    step = max(1, _CHUNK_WORDS.get(tensor.device.type, 1 << 24) // words.shape[1])
    for start in range(0, len(words), step):
        part = slice(start, start + step)
        total += ((words[part] * in_row).sum(1) * of_row[part]).sum()
    return total


@lru_cache(maxsize=128)
def _factors(first: int, count: int, kind: int, device: torch.device) -> Tensor:
    """(count,) odd int64 that look random, and depend on their place from `first` on and on `kind` alone."""
    place = torch.arange(first, first + count, dtype=torch.int64, device=device)
    mixed = (place * 2 + kind) * -7046029254386353131  # the finaliser of SplitMix64, with shifts of signed numbers
    mixed = (mixed ^ (mixed >> 30)) * -4658895280553007687
    mixed = (mixed ^ (mixed >> 27)) * -7723592293110705685
    return (mixed ^ (mixed >> 31)) | 1
