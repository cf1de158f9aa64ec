"""Whichever process fails at any moment, nothing is lost, doubled, stamped with a wrong version or trained on twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.config import AsynchronousConfig
from tests.training.soak import failing_parts, killed_processes, soak
from tests.training.test_schedules import ALL, NAMES


@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_engines_and_a_judge_that_fail_at_random_cost_no_rollout(tmp_path: Path, schedule):
    with failing_parts() as stages:
        found = soak(schedule, tmp_path, stages, total=15)
    assert found.faults["no verdict"]


@pytest.mark.slow
def test_processes_that_are_killed_at_random_cost_no_rollout(tmp_path: Path):
    with killed_processes(seed=6) as stages:  # strikes a sampler, the trainer and, most of all, the judge
        found = soak(AsynchronousConfig(max_staleness=2, order="completion"), tmp_path, stages, total=20)
    print(found)  # noqa: T201  shown with -s
    assert found.lives > 1


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_a_thousand_iterations_of_parts_that_fail_cost_no_rollout(tmp_path: Path, schedule):
    with failing_parts() as stages:
        found = soak(schedule, tmp_path, stages, total=1000)
    print(schedule, found)  # noqa: T201  shown with -s
    assert min(found.faults["a sampler restarted"], found.faults["no verdict"], found.lives) > 20


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("schedule", ALL, ids=NAMES)
def test_processes_that_are_killed_over_a_thousand_iterations_in_all_cost_no_rollout(tmp_path: Path, schedule):
    with killed_processes(seed=ALL.index(schedule), chance=0.08) as stages:
        found = soak(schedule, tmp_path, stages, total=84)
    print(schedule, found)  # noqa: T201  shown with -s
    assert sum(times for name, times in found.faults.items() if name.endswith("killed")) > 5
