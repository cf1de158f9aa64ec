"""Seconds are added up by name, also of a block that has not ended."""

from __future__ import annotations

import itertools

import pytest

from autoclave.training import metrics as timing
from autoclave.training.metrics import Stopwatch


@pytest.fixture(autouse=True)
def _clock_that_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second later."""
    ticks = itertools.count(100.0)
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(ticks))


def test_blocks_of_one_name_add_up():
    watch = Stopwatch()
    for _ in range(3):
        with watch.time("rl"):
            pass
    assert watch.seconds == {"rl": 3.0}


def test_a_block_that_fails_is_timed_too():
    watch = Stopwatch()
    with pytest.raises(ValueError, match="broken"), watch.time("rl"):
        raise ValueError("broken")
    assert watch.seconds == {"rl": 1.0}


def test_a_block_that_has_not_ended_counts_so_far():
    watch = Stopwatch()
    with watch.time("total"):
        with watch.time("rl"):
            pass
        assert watch.so_far() == {"rl": 1.0, "total": 3.0}
    assert watch.seconds == {"rl": 1.0, "total": 4.0}


def test_what_is_taken_starts_again_from_0():
    watch = Stopwatch()
    with watch.time("learn"):
        pass
    assert watch.take() == {"learn": 1.0}
    assert watch.take() == {}
