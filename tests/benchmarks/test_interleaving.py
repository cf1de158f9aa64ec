"""Idle slots are counted while a turn is ready, and at no other time."""

from __future__ import annotations

import pytest
from interleaving import idle_share


@pytest.mark.parametrize(
    ("ready", "turns", "share"),
    [
        ([0.0, 0.0], [(0.0, 1.0), (0.0, 1.0)], 0.0),
        ([0.0, 0.0], [(0.0, 1.0), (1.0, 2.0)], 0.25),  # one of two slots, for half of the time
        ([0.0, 1.5], [(0.0, 1.0), (1.5, 2.0)], 0.0),  # nothing was ready
        ([0.0, 1.0], [(0.0, 1.0), (1.5, 2.0)], 0.25),  # both slots, for a quarter of the time
    ],
)
def test_the_idle_share_of_slots(ready: list[float], turns: list[tuple[float, float]], share: float):
    assert idle_share(ready, turns, 2) == share
