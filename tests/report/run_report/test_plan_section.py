"""The section that compares the plan of a run with what it took."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autoclave.config import TrainConfig
from autoclave.planning.calibration import Rates
from autoclave.planning.schedule_plan import (
    PLAN_FORMAT,
    PLAN_NAME,
    Candidate,
    SchedulePlan,
    work_of,
    write_plan,
)
from autoclave.planning.simulation import ScheduleName, Split
from autoclave.report.run_report import write_report
from autoclave.report.run_report.page import plan_section
from autoclave.runs.reader import read_run

SYNCHRONOUS = Candidate(ScheduleName.SYNCHRONOUS, Split.time_sharing(1), 0, 3.0, {})
ONE_OFF = Candidate(ScheduleName.ONE_OFF_PIPELINE, Split(1, 1), 1, 2.0, {})
SETTINGS = TrainConfig().model_dump(mode="json")
PLAN = SchedulePlan(
    PLAN_FORMAT,
    work_of(SETTINGS),
    Rates(1, 0, 8, 2, 0.5, 0.1),
    [(1.0, 9.0)],
    0.0,
    1.0,
    3.1,
    [ONE_OFF, SYNCHRONOUS],
    ONE_OFF,
)


@pytest.fixture
def folder(make_run: Callable[..., Path]) -> Path:
    """A run of the default settings whose steps took 9, 4, 3.9 and 4.1 s."""
    path = make_run(steps=4)
    (path / "config.yaml").write_text(yaml.safe_dump(SETTINGS))
    seconds = iter([9.0, 4.0, 3.9, 4.1])
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines() if line]
    lines = [line | {"time/step_s": next(seconds)} if line["kind"] == "train" else line for line in lines]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_without_a_plan_nothing_is_said(folder: Path):
    assert plan_section(read_run(folder)).sentence == ""
    assert "Planned and measured" not in write_report(folder).read_text()


def test_the_error_of_the_plan_is_shown(folder: Path):
    write_plan(PLAN, folder)
    found = plan_section(read_run(folder))
    assert found.sentence == "A step was planned to take 3.0 s and took 4.0 s: the plan was 25.0% too low."
    assert dict(found.rows) == {
        "Predicted seconds of a step": "3",
        "Measured": "4",
        "Error": "\N{MINUS SIGN}25.0 %",
        "Recommended": "one_off_pipeline 1:1, 2.0 s a step",
    }
    assert "the plan was 25.0% too low" in write_report(folder).read_text()


def test_a_plan_of_other_work_and_a_damaged_one_are_spoken_of(folder: Path):
    write_plan(replace(PLAN, work={**PLAN.work, "group_size": 99}), folder)
    assert plan_section(read_run(folder)).sentence == "The plan is of other settings than this run has."
    (folder / PLAN_NAME).write_text("{}")
    assert "plan.json: format = null" in plan_section(read_run(folder)).sentence
    assert "plan.json" in write_report(folder).read_text()


def test_a_run_that_is_not_measured_yet_shows_what_was_planned(folder: Path):
    write_plan(PLAN, folder)
    (folder / "metrics.jsonl").write_text("")
    assert plan_section(read_run(folder)).sentence == "Planned: 3.0 s a step."
