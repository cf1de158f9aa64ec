"""Guarantees of an undo."""

from collections.abc import Iterable
from enum import StrEnum


class Guarantee(StrEnum):
    """The quality of an undo, known before an action is run; the best first."""

    EXACT = "exact"
    """Everything observable is restored."""
    EQUIVALENT = "equivalent"
    """Equivalent for users; something such as an id or a time differs."""
    COMPENSATING = "compensating"
    """Another action compensates for it."""
    NONE = "none"
    """It cannot be undone."""


def worst(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the least that several undos promise together."""
    return max(guarantees, key=list(Guarantee).index)
