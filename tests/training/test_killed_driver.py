"""Killed with -9 or stopped at any moment and resumed, a run learns from what it would have learnt from, always."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from autoclave.config import ScheduleConfig, SynchronousConfig
from tests.training import killed_driver
from tests.training.test_schedules import ALL


def strike(folder: Path, schedules: list[ScheduleConfig], strikes: int, seed: int, turns: int = 1) -> None:
    """Strike so often in each schedule, resume, and look at what came of it."""
    as_json = TypeAdapter(list[ScheduleConfig]).dump_json(schedules).decode()
    counts = map(str, (strikes, seed, turns))
    command = [sys.executable, "-m", killed_driver.__name__, str(folder), as_json, *counts]
    script = subprocess.run(command, capture_output=True, text=True, check=False)
    assert script.returncode == 0, script.stderr[-3000:]
    found = [json.loads(line) for line in script.stdout.splitlines()]
    print(script.stdout)  # noqa: T201  shown with -s
    assert all(is_repeatable(schedule) <= run["is_same"] for schedule, run in zip(schedules, found, strict=True))
    assert sum(run["killed"] for run in found) >= len(schedules)
    assert sum(run["stopped"] for run in found) >= (turns == 1)
    assert all(run["several_turns"] == (turns > 1) for run in found)


def is_repeatable(schedule: ScheduleConfig) -> bool:
    """Whether what is learnt does not depend on time."""
    return getattr(schedule, "order", "prompt") == "prompt" and not getattr(schedule, "max_staleness", 0)


@pytest.mark.slow
def test_a_driver_that_is_killed_or_stopped_at_any_moment_loses_nothing(tmp_path: Path):
    one_of_each = list({schedule.name: schedule for schedule in ALL}.values())
    strike(tmp_path, one_of_each, strikes=2, seed=1)


@pytest.mark.slow
def test_a_driver_that_is_killed_in_episodes_of_several_turns_loses_nothing(tmp_path: Path):
    strike(tmp_path, [SynchronousConfig()], strikes=1, seed=3, turns=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("turns", [1, 3])
def test_a_driver_that_is_killed_or_stopped_many_times_in_any_schedule_loses_nothing(tmp_path: Path, turns: int):
    strike(tmp_path, list(ALL), strikes=12, seed=2, turns=turns)
