"""The picture of a step: bars where a hand computation says, densities that add up, and a size that has a bound.

The plot area is x 172..1108 of a picture that is 1120 wide.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core.timeline import Role, Span
from autoclave.report.run_report.gantt import LANES, ROWS, gantt, in_flight, lanes, natural

WINDOW = (100.0, 110.0)
HOSTILE = '<script>"&'


def span(role: Role, start: float, end: float, *, step: int = 1, lane: str = "", name: str = "x") -> Span:
    return Span(role, name, start, end, step, lane)


def found(svg: str, tag: str, css_class: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(svg).iter(tag) if css_class in e.get("class", "").split()]


def test_a_bar_lies_over_its_seconds_and_says_what_it_is():
    learn = Span(Role.TRAINER, "learn", 102.0, 107.0, 1, "", {"rollouts": 512})
    (bar,) = found(gantt([learn], WINDOW, 1), "rect", "part")
    assert float(bar.get("x", "")) == pytest.approx(172 + 0.2 * 936, abs=0.1)
    assert float(bar.get("width", "")) == pytest.approx(0.5 * 936 - 0.8, abs=0.1)
    assert bar[0].text == "trainer: learn, 2.000 s to 7.000 s\nrollouts: 512"


def test_bars_that_overlap_stand_in_rows_and_what_is_outside_of_the_window_is_cut():
    spans = [span(Role.SAMPLER, 90, 105), span(Role.SAMPLER, 104, 130), span(Role.SAMPLER, 106, 107)]
    first, second, third = found(gantt(spans, WINDOW, 1), "rect", "part")
    assert first.get("y") == third.get("y") != second.get("y")
    assert float(first.get("x", "")) == 172
    assert float(second.get("x", "")) + float(second.get("width", "")) == pytest.approx(1108 - 0.8, abs=0.1)


def test_many_at_a_time_are_a_density_with_how_many_there_were():
    spans = [span(Role.SAMPLER, 100, 105) for _ in range(ROWS + 1)]
    svg = gantt(spans, WINDOW, 1)
    assert not found(svg, "rect", "part")
    (area,) = found(svg, "path", "part")
    assert area.get("d") == "M172 56V12.0H640.0V56.0H1108.0V56Z"
    assert str(ROWS + 1) in [tick.text for tick in found(svg, "text", "tick")]
    titles = [title.text for title in ElementTree.fromstring(svg).iter("title")]
    assert "sampler: 7 under way, 0.00 s to 0.21 s" in titles
    assert "sampler: 0 under way, 9.79 s to 10.00 s" in titles


def test_spans_of_later_steps_are_pale():
    own, ahead = span(Role.SAMPLER, 100, 101), span(Role.SAMPLER, 102, 103, step=2)
    assert len(found(gantt([own, ahead], WINDOW, 1), "rect", "ahead")) == 1
    areas = found(gantt([own, ahead] * 80, WINDOW, 1), "path", "part")
    assert ["ahead" in area.get("class", "") for area in areas] == [True, False]


def test_lanes_stand_by_role_and_by_the_number_of_their_replica_and_those_beyond_a_limit_are_one():
    spans = [span(Role.SAMPLER, 100, 101, lane=f"replica {number}") for number in reversed(range(LANES + 4))]
    labels = [lane.label for lane in lanes([span(Role.TRAINER, 100, 101), *spans])]
    assert labels[:2] == ["sampler replica 0", "sampler replica 1"]
    assert labels[-2:] == ["sampler, 4 more", "trainer"]
    assert len(labels) == LANES + 2
    assert sorted(["b10", "b9", "b", "a 10", "a 9", ""], key=natural) == ["", "a 9", "a 10", "b", "b9", "b10"]


def test_names_are_never_markup():
    spans = [span(Role.SAMPLER, 100, 101, lane=HOSTILE, name=HOSTILE)]
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(gantt(spans, WINDOW, 1)).iter()}
    assert names == {"svg", "g", "rect", "line", "text", "title"}


@pytest.mark.parametrize("spans", [[], [span(Role.TRAINER, 100, 100)]])
def test_a_step_without_length_or_spans_is_a_picture_too(spans: list[Span]):
    for window in (WINDOW, (100.0, 100.0)):
        ElementTree.fromstring(gantt(spans, window, 1))


def test_the_size_has_a_bound_whatever_the_number_of_spans_and_replicas():
    spans = [
        span(role, 100 + 9 * n / 10_000, 100.5 + 9 * n / 10_000, lane=f"replica {n % 40}")
        for n in range(10_000)
        for role in (Role.SAMPLER, Role.JUDGE)
    ]
    assert len(gantt(spans, WINDOW, 1)) < 250_000


times = st.floats(-5, 15)


@given(st.lists(st.tuples(times, times).map(sorted), max_size=8), st.integers(1, 40))
def test_a_density_has_the_seconds_of_its_spans_within_the_window(pairs: list[list[float]], columns: int):
    spans = [span(Role.SAMPLER, *pair) for pair in pairs]
    levels = in_flight(spans, (0.0, 10.0), columns)
    inside = sum(max(0.0, min(end, 10.0) - max(start, 0.0)) for start, end in pairs)
    assert len(levels) == columns
    assert sum(levels) * 10 / columns == pytest.approx(inside, abs=1e-6)
    assert all(-1e-9 <= level <= len(spans) + 1e-9 for level in levels)
