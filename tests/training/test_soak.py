"""Whoever fails at whatever moment, nothing is lost, doubled, stamped with a wrong version or trained on twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.config import AsynchronousConfig
from tests.training.soak import soak
from tests.training.test_schedules import ALL, NAMES


@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_engines_and_a_judge_that_fail_at_random_cost_no_rollout(tmp_path: Path, schedule):
    soaked = soak(schedule, tmp_path, total=15, chance=0.1)
    assert soaked.faults["judge"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_processes_that_are_killed_at_random_cost_no_rollout(tmp_path: Path):
    soaked = soak(AsynchronousConfig(max_staleness=2, order="completion"), tmp_path, total=12, processes=True)
    assert sum(soaked.faults.values())


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_a_thousand_iterations_of_engines_judge_and_trainer_that_fail_cost_no_rollout(tmp_path: Path, schedule):
    soaked = soak(schedule, tmp_path, total=1000, chance=0.1)
    assert min(soaked.faults[name] for name in ("engine", "judge", "run went on")) > 20
    print(schedule, soaked)  # noqa: T201  shown with -s


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_a_thousand_iterations_of_processes_that_are_killed_cost_no_rollout(tmp_path: Path, schedule):
    soaked = soak(schedule, tmp_path, total=1000, chance=0.02, processes=True)
    assert {"sampler-0", "sampler-1", "trainer", "judge"} <= set(soaked.faults)
    print(schedule, soaked)  # noqa: T201  shown with -s
