"""How good an undo is."""

from enum import StrEnum


class Guarantee(StrEnum):
    """How good an undo is. Told before an action is run."""

    EXACT = "exact"
    """Everything that can be looked at is as it was."""
    EQUIVALENT = "equivalent"
    """The same for its users; something such as an id or a time is another."""
    COMPENSATING = "compensating"
    """Something else makes up for it."""
    NONE = "none"
    """It cannot be taken back."""
