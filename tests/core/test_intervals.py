"""Interval arithmetic against a grid of seconds, which needs none."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autoclave.core.timeline import Interval, clipped, gaps, intersection, seconds, union
from autoclave.runs.timeline.chrome import Rows

SPAN = 30
intervals = st.lists(
    st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)).map(lambda pair: (float(min(pair)), float(max(pair)))),
    max_size=12,
)


def cells(covered: list[Interval]) -> set[int]:
    """The whole seconds that are covered."""
    return {second for start, end in covered for second in range(int(start), int(end))}


@given(intervals)
def test_a_union_covers_what_its_parts_do_in_order_and_apart(parts: list[Interval]):
    found = union(parts)
    assert cells(found) == cells(parts)
    assert seconds(found) == len(cells(parts))
    assert all(start < end for start, end in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))


@given(intervals)
def test_a_union_does_not_change_when_it_is_made_again(parts: list[Interval]):
    assert union(union(parts)) == union(parts)
    assert union(reversed(parts)) == union(parts)


@given(intervals, intervals)
def test_an_intersection_is_what_both_cover(first: list[Interval], second: list[Interval]):
    found = intersection(union(first), union(second))
    assert cells(found) == cells(first) & cells(second)
    assert found == intersection(union(second), union(first))


@given(intervals, st.integers(0, SPAN), st.integers(0, SPAN))
def test_what_is_covered_and_the_gaps_fill_a_window(parts: list[Interval], one: int, other: int):
    window = float(min(one, other)), float(max(one, other))
    left = gaps(union(parts), window)
    assert cells(left) == cells([window]) - cells(parts)
    assert seconds(left) + seconds(union(clipped(parts, window))) == window[1] - window[0]


@given(intervals)
def test_rows_hold_no_two_intervals_at_a_time_and_are_no_more_than_needed(parts: list[Interval]):
    rows, held = Rows(), {}
    for part in sorted(parts):
        held.setdefault(rows.take(part), []).append(part)
    assert all(before[1] <= after[0] for row in held.values() for before, after in pairwise(row))
    most = max((sum(start <= at < end for start, end in parts) for at in range(SPAN)), default=0)
    assert len(rows) <= max(most, bool(parts)) + sum(start == end for start, end in parts)


@given(intervals)
def test_rows_hold_no_two_intervals_at_a_time_whatever_their_order(parts: list[Interval]):
    rows, held = Rows(), {}
    for part in parts:
        held.setdefault(rows.take(part), []).append(part)
    assert all(before[1] <= after[0] for row in held.values() for before, after in pairwise(row))
