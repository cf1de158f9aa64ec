"""What an iteration asks is a pure function of seed and iteration, and no item is asked more often than others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoclave.training.learned import ItemSource, ShuffledItems
from tests.training_parts import item

SIZES = {"num_items": st.integers(1, 12), "per_iteration": st.integers(1, 20), "seed": st.integers(0, 2**63 - 1)}


def source_of(num_items: int, per_iteration: int, seed: int) -> ItemSource:
    return ShuffledItems([item(str(number)) for number in range(num_items)], per_iteration=per_iteration, seed=seed)


def dealt(source: ItemSource, iterations: int) -> list[str]:
    return [asked.id for iteration in range(iterations) for asked in source.at(iteration)]


@given(**SIZES, epochs=st.integers(1, 3))
def test_every_item_is_dealt_once_in_every_epoch(num_items, per_iteration, seed, epochs):
    ids = dealt(source_of(num_items, per_iteration, seed), epochs * num_items)
    for epoch in range(epochs):
        assert sorted(ids[epoch * num_items : (epoch + 1) * num_items]) == sorted(map(str, range(num_items)))


@given(**SIZES, iteration=st.integers(0, 10**6))
def test_an_iteration_is_the_same_whatever_was_dealt_before(num_items, per_iteration, seed, iteration):
    source = source_of(num_items, per_iteration, seed)
    first = source.at(iteration)
    source.at(0)
    assert source.at(iteration) == first == source_of(num_items, per_iteration, seed).at(iteration)
    assert len(first) == per_iteration


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(dealt(source_of(10, 10, seed), epochs)[-10:]) for seed in (0, 1) for epochs in (1, 2)}
    assert len(orders) == 4
