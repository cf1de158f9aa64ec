"""Result of a `learn`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from autoclave.algorithms import LedgerEntry
from autoclave.core import Group, TaskItem
from autoclave.core.rollout import FloatArray
from autoclave.planning.accounting.speed import NOTHING, SequenceLengths

LARGEST = {"log_prob_mismatch", "mismatch/max"}


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of one `learn`: its groups with mask reasons, the account of each rollout in order, and metrics."""

    groups: Sequence[Group]
    ledger: Sequence[LedgerEntry]
    metrics: Mapping[str, float]
    log_probs: Sequence[FloatArray | None]
    """Of each rollout in order: (T,) of its tokens under the policy at the start; None if they were not computed."""
    computed: SequenceLengths = NOTHING
    """Of the rollouts that were scored and learnt from."""


def joined(parts: Sequence[Learned]) -> Learned:
    """All of several: groups one after the other; of each metric the mean over the parts that have it.

    Of those in `LARGEST`, which are the largest of a `learn`, the largest.
    """
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    found = {name: [part.metrics[name] for part in parts if name in part.metrics] for name in names}
    return Learned(
        groups=[group for part in parts for group in part.groups],
        ledger=[entry for part in parts for entry in part.ledger],
        metrics={name: float((np.max if name in LARGEST else np.mean)(values)) for name, values in found.items()},
        log_probs=[log_probs for part in parts for log_probs in part.log_probs],
        computed=SequenceLengths(
            np.concatenate([part.computed.whole for part in parts]),
            np.concatenate([part.computed.response for part in parts]),
        ),
    )


class ItemSource(Protocol):
    """Deals items. Asked again for an iteration that is not done, it deals the same."""

    per_iteration: int

    def at(self, iteration: int) -> list[TaskItem]:
        """The items of an iteration, counted from 0. Iterations are asked for in their order."""
        ...


class ShuffledItems:
    """Deals `items` in an order shuffled for each epoch; an iteration may span two epochs.

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
        count = len(self._items)
        found = (divmod(place, count) for place in places)
        return [self._items[_order(self._seed, epoch, count)[index]] for epoch, index in found]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)
