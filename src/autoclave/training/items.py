"""What is asked at each iteration: a pure function of seed and iteration, so that resuming needs only the number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoclave.core import TaskItem


class ItemSource:
    """Deals `items` in an order shuffled anew for each epoch; an iteration may span two epochs."""

    def __init__(self, items: Sequence[TaskItem], *, per_iteration: int, seed: int) -> None:
        self._items = items
        self.per_iteration = per_iteration
        self._seed = seed

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration, counted from 0."""
        start = iteration * self.per_iteration
        return [self._item(position) for position in range(start, start + self.per_iteration)]

    def _item(self, position: int) -> TaskItem:
        epoch, index = divmod(position, len(self._items))
        return self._items[self._order(epoch)[index]]

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(len(self._items))
