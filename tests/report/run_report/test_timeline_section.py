"""The section about the timeline: which steps are pictured, what it says, and that a step can be chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.report.run_report import timeline as section
from autoclave.report.run_report import write_report
from autoclave.report.run_report.timeline import by_importance, timeline_section
from autoclave.runs.reader import read_run
from autoclave.runs.timeline import timeline_path, write_timeline
from tests.browser import headless


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


def test_the_first_the_last_and_the_middle_step_come_first():
    assert by_importance(list(range(1, 10))) == [1, 9, 5, 3, 7, 2, 4, 6, 8]
    assert by_importance([4]) == [4]
    assert by_importance([]) == []
    assert sorted(by_importance(list(range(50)))) == list(range(50))


def test_some_steps_are_pictured_and_the_page_says_how_many(make_run: Callable[..., Path]):
    folder = make_run(steps=30)
    record(folder, 30)
    found = timeline_section(read_run(folder))
    assert len(found.pictures) == section.SHOWN_STEPS
    assert (found.pictures[0].step, found.pictures[-1].step) == (1, 30)
    assert found.chosen in range(10, 20)
    assert found.left_out == "Pictured are 9 of 30 steps."
    assert found.pictures[0].note == (
        "10.0 s: 200 requests, 200 rewards, 1 update. Sampler busy 40.0% (idle at most 6.0 s at a time). "
        "Judge busy 20.0% (idle at most 5.0 s at a time). Trainer busy 30.0% (idle at most 5.0 s at a time)."
    )


def test_pictures_have_a_bound_of_bytes(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    folder = make_run(steps=5)
    record(folder, 5)
    size = len(timeline_section(read_run(folder)).pictures[0].svg)
    monkeypatch.setattr(section, "PICTURE_BYTES", 3 * size + 100)
    assert [picture.step for picture in timeline_section(read_run(folder)).pictures] == [1, 3, 5]


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
    timeline_path(folder, 3).write_bytes(b"no gzip")
    html = write_report(folder).read_text("utf-8")
    assert "step-000003.jsonl.gz:1: damaged gzip file" in html
    assert "7 spans found no room and are missing." in html


@pytest.mark.timeout(240)
def test_in_a_browser_one_step_shows_and_another_can_be_chosen(make_run: Callable[..., Path], tmp_path: Path):
    folder = make_run(steps=5)
    record(folder, 5)
    page = write_report(folder)
    shown = "[...document.querySelectorAll('.gantt')].filter(e => e.checkVisibility()).map(e => e.dataset.step)"
    with headless(tmp_path / "chromium") as browser:
        browser.open(page)
        assert browser.evaluate(shown) == ["3"]
        browser.evaluate("document.querySelector('#timeline button[value=\"5\"]').click()")
        assert browser.evaluate(shown) == ["5"]
        assert browser.evaluate("document.querySelectorAll('#timeline [aria-pressed=true]').length") == 1
        rollouts = "[...document.querySelectorAll('.rollout')].filter(e => !e.hidden).length"
        assert browser.evaluate(rollouts) > 0 or browser.evaluate("!document.querySelector('.rollout')")
        assert [event for event in browser.events if event["method"] == "Log.entryAdded"] == []
