"""Charts put marks where a hand computation says. The plot area is x 54..544 and y 206..28 of a 560 x 250 picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from autoclave.report.charts import Axis, Line, column_chart, line_chart, ticks

STEP = Axis("step")
SHARE = Axis("share", is_share=True)


def _all(svg: str, name: str, css_class: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(svg).iter(name)
    return [element for element in found if css_class in element.get("class", "").split()]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 60, [0, 20, 40, 60]),
        (3, 11, [4, 6, 8, 10]),
        (-0.5, 0.5, [-0.4, -0.2, 0, 0.2, 0.4]),
        (0, 0.0031, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_ticks_are_round_numbers_within_the_bounds(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_ticks_of_steps_are_whole():
    assert ticks(0, 2, 8, whole=True) == [0, 1, 2]


def test_a_line_goes_from_corner_to_corner():
    svg = line_chart([Line("reward", "accent", [(0, 0.0), (5, 0.25), (10, 1.0)])], STEP, SHARE)
    (line,) = _all(svg, "polyline", "line")
    assert line.get("points") == "54.0,206.0 299.0,161.5 544.0,28.0"  # middle: 54 + 490/2, 206 - 178/4


def test_a_band_runs_along_its_upper_edge_and_back_along_the_lower():
    line = Line("pass@1", "accent", [(0, 0.5), (10, 0.5)], band=[(0, 0.0, 1.0), (10, 0.25, 0.75)])
    (band,) = _all(line_chart([line], STEP, SHARE), "polygon", "band")
    assert band.get("points") == "54.0,28.0 544.0,72.5 544.0,161.5 54.0,206.0"


def test_a_single_point_is_marked_in_the_middle():
    (mark,) = _all(line_chart([Line("loss", "accent", [(3, 2.0)])], STEP, Axis("nats")), "circle", "mark")
    assert (mark.get("cx"), mark.get("cy")) == ("299.0", "28.0")


def test_points_of_a_part_of_the_problems_are_rings():
    line = Line("pass@1", "accent", [(0, 0.2), (5, 0.3), (10, 0.4)], has_marks=True, hollow=frozenset({5}))
    assert [mark.get("cx") for mark in _all(line_chart([line], STEP, SHARE), "circle", "hollow")] == ["299.0"]


def test_negative_values_keep_zero_in_sight():
    svg = line_chart([Line("kl", "accent", [(0, -1.0), (10, 1.0)])], STEP, Axis("nats"))
    (line,) = _all(svg, "polyline", "line")
    assert line.get("points") == "54.0,206.0 544.0,28.0"
    assert '<text class="tick" x="46" y="121.0" text-anchor="end">0</text>' in svg  # 206 - 178/2 + 4


def test_zeros_alone_can_be_drawn():
    (line,) = _all(line_chart([Line("lost", "accent", [(0, 0.0), (10, 0.0)])], STEP, SHARE), "polyline", "line")
    assert line.get("points") == "54.0,206.0 544.0,206.0"


def test_columns_stack_upwards_and_share_the_width():
    svg = column_chart(
        [("good", "accepted"), ("bad", "wrong_answer")], [(1, [0.25, 0.75]), (2, [1.0, 0.0])], STEP, SHARE
    )
    parts = [
        (p.get("class"), p.get("x"), p.get("y"), p.get("width"), p.get("height")) for p in _all(svg, "rect", "part")
    ]
    assert parts == [  # columns of 490/2 with a gap of 1; the lower part is drawn over the upper one
        ("part c-wrong_answer", "54.50", "28.00", "244.00", "178.00"),
        ("part c-accepted", "54.50", "161.50", "244.00", "44.50"),
        ("part c-accepted", "299.50", "28.00", "244.00", "178.00"),
    ]


def test_values_show_on_hover_from_the_top_of_the_stack_down():
    svg = column_chart([("good", "accepted"), ("bad", "wrong_answer")], [(7, [0.25, 0.75])], STEP, SHARE)
    assert "<title>step 7\nbad: 75.0%\ngood: 25.0%</title>" in svg


def test_hostile_labels_stay_text():
    hostile = "</text><script>alert(1)</script>"
    svg = line_chart([Line(hostile, "accent", [(0, 1.0)])], Axis(hostile), Axis(hostile))
    svg += column_chart([(hostile, "accent")], [(0, [1.0])], Axis(hostile), Axis(hostile))
    assert "<script" not in svg


def test_every_text_stays_within_the_picture():
    svg = line_chart([Line("speed", "accent", [(0, 0.0), (2000, 123456.0)])], STEP, Axis("tokens per second"))
    places = [float(x) for x in re.findall(r'<text[^>]* x="([\d.]+)"', svg)]
    assert min(places) >= 0
    assert max(places) <= 560
