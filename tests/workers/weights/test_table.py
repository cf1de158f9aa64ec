"""Where weights stand in a flat buffer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.workers.weights.table import Weight, WeightTable

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8]


@st.composite
def weights(draw: st.DrawFn) -> list[Weight]:
    shapes = draw(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=8))
    return [
        Weight(
            tuple(f"w{number}.{other}" for other in range(draw(st.integers(1, 2)))),
            draw(st.sampled_from(DTYPES)),
            tuple(shape),
        )
        for number, shape in enumerate(shapes)
    ]


def filled(table: WeightTable) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A buffer with a number of its own in every byte's place, and a copy of what each weight was given."""
    buffer = torch.zeros(table.num_bytes, dtype=torch.uint8)
    given = {}
    for number, (name, view) in enumerate(table.views(buffer).items()):
        if name not in table.aliases:
            view.fill_(number + 1)
            given[name] = view.clone()
    return buffer, given


@given(weights())
def test_every_weight_has_a_place_of_its_own(weights: list[Weight]):
    table = WeightTable.of(weights)
    buffer, given = filled(table)
    found = table.views(buffer)
    assert set(found) == {name for weight in weights for name in weight.names}
    for name, tensor in given.items():
        assert torch.equal(found[name], tensor)
        assert found[name].storage_offset() * tensor.element_size() % 64 == 0


@given(weights(), st.integers(1, 2000))
def test_pieces_hold_what_the_whole_buffer_holds(weights: list[Weight], most_bytes: int):
    table = WeightTable.of(weights)
    buffer, given = filled(table)
    pieces = table.buckets(most_bytes)
    parts = {piece: buffer[slice(*piece)].clone() for piece in pieces}
    assert torch.equal(torch.cat([torch.empty(0, dtype=torch.uint8), *parts.values()]), buffer)
    found = table.views_of_buckets(parts)
    assert all(torch.equal(found[name], tensor) for name, tensor in given.items())
    largest = max((entry.end - entry.offset for entry in table.entries), default=0)
    assert all(stop - start <= max(most_bytes, largest) for start, stop in pieces)


def test_names_of_one_weight_are_one_place():
    table = WeightTable.of([Weight(("embed", "head"), torch.float32, (3, 2))])
    found = table.views(torch.zeros(table.num_bytes, dtype=torch.uint8))
    assert table.num_bytes == 64
    assert found["head"] is found["embed"]


def test_only_floating_point_weights_are_converted():
    table = WeightTable.of([Weight(("a",), torch.float32, (2,)), Weight(("n",), torch.int64, (2,))], torch.bfloat16)
    assert [entry.dtype for entry in table.entries] == [torch.bfloat16, torch.int64]


def test_a_buffer_that_does_not_fit_is_refused():
    table = WeightTable.of([Weight(("a",), torch.float32, (20,))])
    with pytest.raises(ValueError, match="a piece of 64 bytes stands for bytes 0 to 128"):
        table.views(torch.zeros(64, dtype=torch.uint8))
    with pytest.raises(ValueError, match="pieces of 64 bytes for a table of 128"):
        table.views_of_buckets({(0, 64): torch.zeros(64, dtype=torch.uint8)})
