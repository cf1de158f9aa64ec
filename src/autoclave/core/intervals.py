"""Sets of time as sorted intervals that do not touch. Pure; each takes time in proportion to n log n or less."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autoclave.core.timeline import Interval


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time that at least one of `intervals` covers. Those without length are left out."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > start:
            merged.append((start, end))
    return merged


def intersection(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The time that both unions cover."""
    common: list[Interval] = []
    left = right = 0
    while left < len(first) and right < len(second):
        start, end = max(first[left][0], second[right][0]), min(first[left][1], second[right][1])
        if end > start:
            common.append((start, end))
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return common


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of `intervals` within `window`, in their order; nothing is merged."""
    low, high = window
    return [(max(start, low), min(end, high)) for start, end in intervals if end > low and start < high]


def gaps(covered: Sequence[Interval], window: Interval) -> list[Interval]:
    """The time of `window` that the union `covered` leaves."""
    inside = clipped(covered, window)
    edges = [window[0], *(edge for interval in inside for edge in interval), window[1]]
    return [(start, end) for start, end in zip(edges[0::2], edges[1::2], strict=True) if end > start]


def seconds(intervals: Iterable[Interval]) -> float:
    """Their lengths, added up."""
    return sum(end - start for start, end in intervals)
