"""Split of the pairs of adjacent operations into those for training, for validation and for the report.

The unit of the split is the ordered pair (operation, next operation) of one domain, whatever the parameters, wording,
style, start and final. Starts and finals are not operations, so pairs with them are not held out: held-out problems
combine operations in new ways, and each single operation occurs in training.

    train       tasks without any kept pair
    validation  tasks with at least one validation pair and none of the report
    heldout     tasks with at least one pair of the report and none of validation

Not here: equality of behaviour, which also keeps tasks apart (`build.py`).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from typing import TypeVar

from autoclave_environments.synthetic.compose import DOMAINS, OperationPair, qualified_name

_VALIDATION_SHARE = 0.25

T = TypeVar("T")


class Part(StrEnum):
    """Disjoint sets of problems."""

    TRAIN = "train"
    """For warm start and reinforcement learning."""
    VALIDATION = "validation"
    """For tuning."""
    HELDOUT = "heldout"
    """For the figures reported."""


@dataclass(frozen=True, slots=True)
class Split:
    """The pairs that no training program contains."""

    validation: frozenset[OperationPair]
    heldout: frozenset[OperationPair]

    @staticmethod
    def of(seed: int, heldout_share: float) -> "Split":
        """Keep of each domain's pairs the share with the lowest hashes; a quarter of those are for validation."""
        validation: list[OperationPair] = []
        heldout: list[OperationPair] = []
        for domain in DOMAINS:
            names = [qualified_name(domain, operation) for operation in domain.operations]
            kept = lowest(permutations(names, 2), heldout_share, f"{seed} pair")
            num_validation = round(_VALIDATION_SHARE * len(kept))
            validation += kept[:num_validation]
            heldout += kept[num_validation:]
        return Split(frozenset(validation), frozenset(heldout))

    def part(self, pairs: Iterable[OperationPair]) -> Part | None:
        """Return the part of a task with these pairs; None if it mixes validation and report."""
        pairs = frozenset(pairs)
        if pairs & self.validation:
            return None if pairs & self.heldout else Part.VALIDATION
        return Part.HELDOUT if pairs & self.heldout else Part.TRAIN


def lowest(items: Iterable[T], share: float, salt: str) -> list[T]:
    """Return the given share of `items`: those with the lowest hashes, in the order of the hashes."""
    ranked = sorted(items, key=lambda item: hashlib.sha256(f"{salt} {item}".encode()).digest())
    return ranked[: round(share * len(ranked))]
