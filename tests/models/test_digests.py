"""A digest is that of a tensor's bytes, however it is sharded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autoclave.models import WeightShard, digests, joined_digests


def value(tensor: Tensor) -> int:
    return digests({"x": tensor})["x"].value


def weight(rows: int, columns: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    cut=st.integers(0, 9),
)
def test_the_digest_of_a_tensor_is_the_sum_of_those_of_its_shards(rows, columns, dtype, cut):
    whole = weight(rows, 8 * columns, dtype)
    by_rows = [WeightShard(whole[:cut]), WeightShard(whole[cut:], row=min(cut, rows))]
    edge = 8 * (columns // 2)
    by_columns = [
        WeightShard(whole[:, :edge], num_columns=8 * columns),
        WeightShard(whole[:, edge:], column=edge, num_columns=8 * columns),
    ]
    for parts in (by_rows, by_columns):
        assert joined_digests(digests({"x": part}) for part in parts) == digests({"x": whole})


@given(st.integers(0, 47), st.integers(0, 15))
def test_every_bit_counts(place: int, bit: int):
    own = weight(6, 8, torch.bfloat16)
    other = own.clone()
    other.view(torch.int16).view(-1)[place] ^= -(1 << 15) if bit == 15 else 1 << bit
    assert value(own) != value(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_count(dtype: torch.dtype):
    own = weight(64, 24, dtype)
    others = [
        own[torch.randperm(64)],
        own.roll(1, 0),
        own.roll(1, 1),
        own.flip(0),
        own.T.reshape(64, 24),
        own[:, [1, 0, *range(2, 24)]],
    ]
    assert len({value(each) for each in (own, *others)}) == 1 + len(others)
    assert value(own.T.contiguous().T) == value(own)  # bytes in memory may lie otherwise


def test_formats_without_rows_or_numbers_have_digests_too():
    odd = {"bias": torch.ones(3, dtype=torch.float16), "flag": torch.tensor(True), "none": torch.zeros(0, 4)}
    assert [digests(odd)[name].dtype for name in odd] == [torch.float16, torch.bool, torch.float32]
    buffer = torch.zeros(33, dtype=torch.uint8)
    assert value(buffer[1:33]) == value(torch.zeros(32, dtype=torch.uint8))  # words that are not aligned
