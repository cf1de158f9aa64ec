"""Offsets of weights in a flat buffer. Computed once; pure functions of names, shapes and number formats.

Weights stand one after the other, each at a multiple of `ALIGNMENT`. One that has several names (tied) stands there
once, under the first of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from autoclave.workers.wire import ALIGNMENT


@dataclass(frozen=True, slots=True)
class Entry:
    """One weight: its name, number format, shape, and the byte at which it begins."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def num_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)

    @property
    def end(self) -> int:
        """Offset of the next one; one without numbers has a place too, so that every weight is in some piece."""
        return self.offset + -(-max(1, self.num_bytes) // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Weight:
    """Name, shape and format of a weight; `names` are all that it has."""

    names: tuple[str, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightTable:
    """The layout of a buffer of `num_bytes`; `aliases` gives the entry's name for each further name of a weight."""

    entries: tuple[Entry, ...]
    aliases: Mapping[str, str]
    num_bytes: int

    @staticmethod
    def of(weights: Iterable[Weight], dtype: torch.dtype | None = None) -> "WeightTable":
        """The table of `weights`, in order; floating-point ones are held in `dtype` if it is given."""
        entries: list[Entry] = []
        aliases: dict[str, str] = {}
        end = 0
        for weight in weights:
            name, *others = weight.names
            held = dtype if dtype and weight.dtype.is_floating_point else weight.dtype
            entries.append(Entry(name, held, weight.shape, end))
            aliases |= dict.fromkeys(others, name)
            end = entries[-1].end
        return WeightTable(tuple(entries), aliases, end)

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Each weight in `buffer` (num_bytes,) uint8, by all its names.

        Raises ValueError: the buffer has another size.
        """
        return self.views_of_buckets({(0, self.num_bytes): buffer})

    def buckets(self, most_bytes: int) -> list[tuple[int, int]]:
        """The buffer cut into pieces [start, stop) of whole weights, of at most `most_bytes` where a weight allows."""
        pieces: list[tuple[int, int]] = []
        start = 0
        for entry in self.entries:
            if entry.end - start > most_bytes and entry.offset > start:
                pieces.append((start, entry.offset))
                start = entry.offset
        if self.num_bytes > start:
            pieces.append((start, self.num_bytes))
        return pieces

    def views_of_buckets(self, buckets: Mapping[tuple[int, int], Tensor]) -> dict[str, Tensor]:
        """Each weight by all its names, where the pieces of the buffer lie apart.

        Raises ValueError: the pieces are not those of a whole buffer, or one has another size.
        """
        _require_whole(buckets, self.num_bytes)
        found: dict[str, Tensor] = {}
        places = iter(sorted(buckets))
        start, stop = next(places, (0, 0))
        for entry in self.entries:
            if entry.offset >= stop:
                start, stop = next(places, (start, stop))
            found[entry.name] = _view(buckets[start, stop], entry, start)
        return found | {alias: found[name] for alias, name in self.aliases.items()}


def _view(buffer: Tensor, entry: Entry, start: int) -> Tensor:
    begin = entry.offset - start
    return buffer[begin : begin + entry.num_bytes].view(entry.dtype).view(entry.shape)


def _require_whole(buckets: Mapping[tuple[int, int], Tensor], num_bytes: int) -> None:
    end = 0
    for (start, stop), bucket in sorted(buckets.items(), key=lambda each: each[0]):
        if start != end or bucket.numel() != stop - start:
            raise ValueError(f"a piece of {bucket.numel()} bytes stands for bytes {start} to {stop}, after {end}")
        end = stop
    if end != num_bytes:
        raise ValueError(f"pieces of {end} bytes for a table of {num_bytes}")
