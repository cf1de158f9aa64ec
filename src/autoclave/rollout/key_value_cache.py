"""Key-value caches whose rows come and go: a decoded token costs a write instead of a copy of everything.

Rows end together at the last column, whatever their length; what stands before the beginning of a row is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, length, width) as views of buffers with room for further tokens."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._key_buffer: Tensor | None = None
        self._value_buffer: Tensor | None = None

    def hold(self, keys: Tensor, values: Tensor, length: int) -> None:
        """Take these buffers, of which the first `length` columns are filled."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self._key_buffer, self._value_buffer = keys, values
        self.keys, self.values = keys[:, :, :length], values[:, :, :length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the new states and return all of them; without room left, all is copied."""
        if self._key_buffer is None or self._value_buffer is None:
            self.hold(key_states, value_states, key_states.shape[2])
            return self.keys, self.values
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > self._key_buffer.shape[2]:
            self.hold(torch.cat([self.keys, key_states], 2), torch.cat([self.values, value_states], 2), end)
            return self.keys, self.values
        self._key_buffer[:, :, start:end] = key_states
        self._value_buffer[:, :, start:end] = value_states
        self.keys, self.values = self._key_buffer[:, :, :end], self._value_buffer[:, :, :end]
        return self.keys, self.values


def growing_cache(config: PretrainedConfig) -> DynamicCache:
    """An empty cache for a model of this `config`; layers other than plain full attention keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def can_be_joined(cache: DynamicCache) -> bool:
    """Return whether rows of another cache can be put beside those of this one."""
    return all(isinstance(layer, GrowingLayer) for layer in cache.layers)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a cache, by number; a row may be taken several times. Of each the last `columns` count."""

    cache: DynamicCache
    numbers: Tensor
    columns: int


def put_together(parts: list[Rows], room: int) -> DynamicCache:
    """A cache of the rows of all `parts`, in order, with room for so many more tokens; the parts are used up.

    Layers are moved one after the other, so that no more than one of them is there twice. Those that are not
    `GrowingLayer` need a single part, of which all columns count.
    """
    whole = parts[0].cache
    for index, layer in enumerate(whole.layers):
        if isinstance(layer, GrowingLayer):
            _move(layer, [(part, part.cache.layers[index]) for part in parts], room)
        else:
            layer.batch_select_indices(parts[0].numbers)  # pyright: ignore[reportAttributeAccessIssue]  all have it
    return whole


def _move(layer: GrowingLayer, parts: list[tuple[Rows, Any]], room: int) -> None:
    length = max(part.columns for part, _ in parts)
    buffers: list[Tensor] = []
    for name in ("keys", "values"):
        found = [(part, getattr(source, name)) for part, source in parts]
        _, heads, _, width = found[0][1].shape
        rows = sum(len(part.numbers) for part, _ in found)
        buffer = found[0][1].new_empty((rows, heads, length + room, width))
        start = 0
        for part, source in found:
            stop, first = start + len(part.numbers), length - part.columns
            buffer[start:stop, :, :first] = 0  # masked, but 0 x NaN would not be 0
            buffer[start:stop, :, first:length] = source[part.numbers, :, source.shape[2] - part.columns :]
            start = stop
        buffers.append(buffer)
    for _, source in parts[1:]:
        source.hold(buffers[0][:0], buffers[1][:0], 0)  # free what it held
    layer.hold(buffers[0], buffers[1], length)
