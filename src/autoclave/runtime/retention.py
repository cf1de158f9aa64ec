"""Which actions need not be kept any longer to be redone or run. What stands is never among them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.runtime.journal import Standing
from autoclave.runtime.states import STANDING

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept. What stands is kept until it is committed, whatever these say."""

    num_bytes: int = 10 << 30
    """Of all actions together. What can be forgotten goes first; when what stands alone needs more, nothing new is
    done."""
    redo_s: float = 30 * _DAY_S
    """How long what was undone can be redone, what failed is kept, and what was proposed can be run."""


def due(found: Sequence[Standing], retention: Retention, kept_bytes: int, now: float) -> list[str]:
    """The actions to forget, of those that were found, the oldest first: too old ones, and then until the quota holds.

    `kept_bytes` is what all actions together keep, `now` in seconds since 1970.
    """
    oldest = sorted((each for each in found if each.state not in STANDING), key=lambda each: each.number)
    forgotten: list[str] = []
    for each in oldest:
        if each.at + retention.redo_s < now or (kept_bytes > retention.num_bytes and each.kept_bytes):
            forgotten.append(each.action)
            kept_bytes -= each.kept_bytes or 0
    return forgotten
