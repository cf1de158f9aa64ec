"""A key-value cache that grows in steps, so that a decoded token costs a write instead of a copy of everything."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, length, width) as views of buffers with room for `reserve` further tokens."""

    def __init__(self, reserve: int) -> None:
        super().__init__()
        self._reserve = reserve

    keys: Tensor
    values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the new states and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._key_buffer, self._value_buffer = key_states[:, :, :0], value_states[:, :, :0]
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if end > self._key_buffer.shape[-2]:
            self._key_buffer = self._with_room(self._key_buffer, start, end)
            self._value_buffer = self._with_room(self._value_buffer, start, end)
        self._key_buffer[:, :, start:end] = key_states
        self._value_buffer[:, :, start:end] = value_states
        self._show(end)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order; one may be named several times."""
        self._key_buffer, self._value_buffer = self._key_buffer[indices], self._value_buffer[indices]
        self._show(self.get_seq_length())

    def _with_room(self, buffer: Tensor, length: int, needed: int) -> Tensor:
        wider = buffer.new_empty((*buffer.shape[:2], needed + self._reserve, buffer.shape[3]))
        wider[:, :, :length] = buffer[:, :, :length]
        return wider

    def _show(self, length: int) -> None:
        self.keys, self.values = self._key_buffer[:, :, :length], self._value_buffer[:, :, :length]


def growing_cache(config: PretrainedConfig, reserve: int) -> DynamicCache:
    """A cache for a model of this `config`; layers other than plain full attention keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer(reserve) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def repeat_rows(cache: DynamicCache, repeats: Tensor) -> None:
    """Repeat row i of the batch `repeats[i]` times in every layer."""
    cache.batch_select_indices(torch.repeat_interleave(torch.arange(len(repeats), device=repeats.device), repeats))
