"""A growing cache holds what the cache of Transformers holds, whatever rows come and go."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from autoclave.rollout.transformers_engine import Rows, growing_cache, put_together
from tests.training_parts import tiny_policy

CONFIG = tiny_policy().model.config
LAYERS = CONFIG.num_hidden_layers


def filled(generator: torch.Generator, rows: int, length: int) -> DynamicCache:
    cache = growing_cache(CONFIG)
    append([cache], generator, rows, length)
    return cache


def append(caches: list[DynamicCache], generator: torch.Generator, rows: int, length: int) -> None:
    """Append the same states to all `caches`, and see that they give the same back."""
    for layer in range(LAYERS):
        keys, values = (torch.randn(rows, 2, length, 16, generator=generator) for _ in range(2))
        found = [cache.update(keys, values, layer) for cache in caches]
        assert all(torch.equal(one, other) for pair in found for one, other in zip(pair, found[0], strict=True))


@given(
    st.integers(1, 3),
    st.integers(0, 4),
    st.lists(
        st.tuples(st.integers(1, 6), st.lists(st.integers(0, 10), min_size=1, max_size=5)), min_size=1, max_size=6
    ),
)
def test_after_any_appends_and_selections_it_equals_a_dynamic_cache(rows, room, actions):
    generator = torch.Generator().manual_seed(rows)
    grown, dynamic = growing_cache(CONFIG), DynamicCache(config=CONFIG)
    for length, chosen in actions:
        append([dynamic, grown], generator, rows, length)
        kept = torch.tensor([row % rows for row in chosen])
        grown = put_together([Rows(grown, kept, grown.get_seq_length())], room)
        dynamic.batch_select_indices(kept)
        rows = len(kept)
    assert grown.get_seq_length() == dynamic.get_seq_length() == sum(length for length, _ in actions)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7), st.integers(0, 3))
def test_rows_of_two_caches_end_together_and_what_stands_before_them_is_zero(first, second, columns, room):
    generator = torch.Generator().manual_seed(0)
    one, other = filled(generator, 3, first), filled(generator, 2, second)
    kept = min(columns, first)
    keys = [[layer.keys for layer in cache.layers] for cache in (one, other)]
    both = put_together([Rows(one, torch.tensor([2, 0]), kept), Rows(other, torch.tensor([1, 1, 0]), second)], room)
    longest = max(kept, second)
    for number, layer in enumerate(both.layers):
        found = layer.keys
        assert found.shape[2] == longest
        assert torch.equal(found[:2, :, longest - kept :], keys[0][number][[2, 0], :, first - kept :])
        assert torch.equal(found[2:, :, longest - second :], keys[1][number][[1, 1, 0]])
        assert not found[:2, :, : longest - kept].any()
        assert not found[2:, :, : longest - second].any()


def test_room_is_made_once_for_as_many_tokens_as_are_asked_for():
    generator = torch.Generator().manual_seed(0)
    cache = put_together([Rows(filled(generator, 1, 3), torch.tensor([0]), 3)], 8)
    place = cache.layers[0].keys.data_ptr()
    for _ in range(8):
        append([cache], generator, 1, 1)
    assert cache.layers[0].keys.data_ptr() == place
