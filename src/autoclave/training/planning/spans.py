"""Who did what, when; and how much of the time somebody was busy, alone or beside others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Interval = tuple[float, float]


class Role(StrEnum):
    """Who works."""

    SAMPLER = "sampler"
    """A request on a device; lanes are devices, places are slots of the device."""
    JUDGE = "judge"
    """A reward; lanes are slots."""
    TRAINER = "trainer"
    """An update, on all devices of the trainer; one lane."""
    PUBLISH = "publish"
    """Weights on their way from the trainer to samplers; one lane."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work, in seconds from the start of the run."""

    role: Role
    lane: int
    place: int
    """Within the lane; no two spans of one place overlap."""
    iteration: int
    request: int | None
    """Which of its iteration; None of an update or publish."""
    start: float
    end: float


def union(spans: Iterable[Span], window: Interval | None = None) -> list[Interval]:
    """When at least one of `spans` was going on, within `window`: intervals in order, none touching the next."""
    low, high = window or (float("-inf"), float("inf"))
    merged: list[Interval] = []
    for start, end in sorted((max(span.start, low), min(span.end, high)) for span in spans):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Seconds of all together."""
    return sum(end - start for start, end in intervals)


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Seconds that are in both; each is what `union` gives."""
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total
