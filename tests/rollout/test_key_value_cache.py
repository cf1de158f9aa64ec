"""The growing cache holds what the cache of Transformers holds."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from autoclave.rollout.key_value_cache import growing_cache, repeat_rows
from tests.training_parts import tiny_policy

CONFIG = tiny_policy().model.config
LAYERS = CONFIG.num_hidden_layers


def states(generator: torch.Generator, rows: int, length: int) -> torch.Tensor:
    return torch.randn(rows, 2, length, 16, generator=generator)


@given(
    st.integers(1, 3),
    st.integers(0, 4),
    st.lists(
        st.tuples(st.integers(1, 6), st.lists(st.integers(0, 10), min_size=1, max_size=5)), min_size=1, max_size=6
    ),
)
def test_after_any_appends_and_selections_it_equals_a_dynamic_cache(rows, reserve, actions):
    generator = torch.Generator().manual_seed(rows)
    grown, dynamic = growing_cache(CONFIG, reserve), DynamicCache(config=CONFIG)
    for length, chosen in actions:
        for layer in range(LAYERS):
            keys, values = states(generator, rows, length), states(generator, rows, length)
            ours, theirs = grown.update(keys, values, layer), dynamic.update(keys, values, layer)
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
        kept = torch.tensor([row % rows for row in chosen])
        grown.batch_select_indices(kept)
        dynamic.batch_select_indices(kept)
        rows = len(kept)
    assert grown.get_seq_length() == dynamic.get_seq_length() == sum(length for length, _ in actions)


def test_rows_are_repeated_as_often_as_asked():
    cache = growing_cache(CONFIG, 4)
    keys = states(torch.Generator().manual_seed(0), 2, 3)
    for layer in range(LAYERS):
        cache.update(keys, keys, layer)
    repeat_rows(cache, torch.tensor([2, 3]))
    assert torch.equal(cache.layers[0].keys, keys[[0, 0, 1, 1, 1]])


def test_room_is_made_once_for_as_many_tokens_as_are_reserved():
    cache = growing_cache(CONFIG, 8)
    keys = states(torch.Generator().manual_seed(0), 1, 3)
    cache.update(keys, keys, 0)
    place = cache.layers[0].keys.data_ptr()
    for _ in range(8):
        cache.update(keys[:, :, :1], keys[:, :, :1], 0)
    assert cache.layers[0].keys.data_ptr() == place
