"""Items of each iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from autoclave.core import TaskItem


class ItemSource(Protocol):
    """Deals items. Asked again for an iteration that is not done, it deals the same."""

    per_iteration: int

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration, counted from 0. Iterations are asked for in their order."""
        ...


class ShuffledItems:
    """Deals `items` in an order shuffled anew for each epoch; an iteration may span two epochs.

    A pure function of seed and place, so that resuming needs only the number.
    """

    def __init__(self, items: Sequence[TaskItem], *, per_iteration: int, seed: int) -> None:
        self._items = items
        self.per_iteration = per_iteration
        self._seed = seed

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration; see `ItemSource`."""
        start = iteration * self.per_iteration
        return self.at_positions(range(start, start + self.per_iteration))

    def at_positions(self, places: Iterable[int]) -> list[TaskItem]:
        """The items at these places of all that is ever dealt, counted from 0."""
        return [self._item(place) for place in places]

    def _item(self, place: int) -> TaskItem:
        epoch, index = divmod(place, len(self._items))
        return self._items[self._order(epoch)[index]]

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(len(self._items))
