"""The section about the timeline: the picture of a step, and what is said of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.report.run_report import write_report
from autoclave.report.run_report.timeline import strips, timeline_section
from autoclave.runs.reader import read_run
from autoclave.runs.timeline import timeline_path, write_timeline


def record(folder: Path, steps: int, *, dropped: int = 0) -> None:
    """Steps of 10 s, with 200 requests of 4 s each, a reward of each, and an update of 3 s."""
    write_timeline(folder, StepTimeline(0, 0.0, 5.0, ()))
    for step in range(1, steps + 1):
        begin = 20.0 * step
        requests = [Span(Role.SAMPLER, f"p#{n}", begin, begin + 4, step) for n in range(200)]
        rewards = [Span(Role.JUDGE, f"p#{n}", begin + 3, begin + 5, step) for n in range(200)]
        learn = Span(Role.TRAINER, "learn", begin + 5, begin + 8, step)
        write_timeline(folder, StepTimeline(step, begin, begin + 10, (*requests, *rewards, learn), dropped))


def with_metrics(folder: Path, **metrics: float) -> None:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line | metrics if line["kind"] == "train" else line for line in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_middle_step_is_pictured(make_run: Callable[..., Path]):
    folder = make_run(steps=30)
    record(folder, 30)
    picture = timeline_section(read_run(folder)).picture
    assert picture
    assert picture.step == 16
    assert picture.note == (
        "10.0 s. Sampler busy 40.0% (idle at most 6.0 s at a time). "
        "Judge busy 20.0% (idle at most 5.0 s at a time). Trainer busy 30.0% (idle at most 5.0 s at a time)."
    )


def lanes_of(spans: list[Span]) -> dict[str, str]:
    """The path of each lane of the picture, by its label."""
    elements = list(ElementTree.fromstring(strips(spans, (100.0, 110.0))).iter())
    labels = [element.text or "" for element in elements if element.get("class") == "name"]
    return dict(
        zip(labels, [element.get("d", "") for element in elements if element.get("d") is not None], strict=True)
    )


def test_a_lane_is_filled_where_a_span_is_under_way():
    requests = [Span(Role.SAMPLER, "x", *times, 1) for times in ((90, 102), (101, 103), (105, 130))]
    learn = Span(Role.TRAINER, "learn", 102.0, 107.0, 1)
    assert lanes_of([learn, *requests]) == {  # seconds 0, 3, 5 and 10 are at 172, 453, 640 and 1108
        "sampler": "M172 4H454V18H172ZM640 4H1109V18H640Z",
        "trainer": "M359 26H828V40H359Z",
    }


def test_lanes_are_of_replicas_in_order_and_many_replicas_are_one_lane():
    few, many = (
        [Span(Role.SAMPLER, "x", 100, 101, 1, f"replica {number}") for number in reversed(range(count))]
        for count in (3, 20)
    )
    assert list(lanes_of(few)) == ["sampler replica 0", "sampler replica 1", "sampler replica 2"]
    assert list(lanes_of(many)) == ["sampler (20)"]


def test_the_picture_is_small_whatever_the_number_of_spans_and_its_labels_are_no_markup():
    spans = [Span(Role.JUDGE, "x", 100 + n / 5000, 100.1 + n / 5000, 1, "<b>&") for n in range(50_000)]
    assert len(strips(spans, (100.0, 110.0))) < 10_000
    assert list(lanes_of(spans)) == ["judge <b>&"]
    assert lanes_of([]) == {}


def test_shares_of_the_run_are_weighted_by_the_seconds_of_steps(make_run: Callable[..., Path]):
    folder = make_run(steps=3)
    shares = {"busy/sampler": 0.5, "busy/judge": 0.25, "busy/trainer": 0.75, "hidden/reward": 0.9}
    with_metrics(folder, **shares)
    found = timeline_section(read_run(folder))
    assert [(row.role, row.busy, row.hidden) for row in found.rows] == [
        ("sampler", pytest.approx(0.5), None),
        ("judge", pytest.approx(0.25), pytest.approx(0.9)),
        ("trainer", pytest.approx(0.75), 0.0),
    ]
    assert found.sentence == (
        "The trainer is the bottleneck, busy in 75.0% of the time of all steps. "
        "Sampling hid 90.0% of the time of rewards and 0.0% of the time of the trainer."
    )


def test_what_is_missing_or_damaged_is_said(make_run: Callable[..., Path]):
    folder = make_run(steps=3)
    assert "No timeline recorded." in write_report(folder).read_text("utf-8")
    record(folder, 3, dropped=7)
    assert "7 spans found no room and are missing." in write_report(folder).read_text("utf-8")
    timeline_path(folder, 2).write_bytes(b"no gzip")
    assert "step-000002.jsonl.gz:1: damaged gzip file" in write_report(folder).read_text("utf-8")
