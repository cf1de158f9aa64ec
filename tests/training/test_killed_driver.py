"""Killed with -9 at any moment and resumed, a run learns from what it would have learnt from, in every schedule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autoclave.config import AsynchronousConfig, MinibatchPipelineConfig, OneOffPipelineConfig, SynchronousConfig
from tests.training import killed_driver
from tests.training.test_run_to_end import name_of

REPEATABLE = (SynchronousConfig(), OneOffPipelineConfig(), MinibatchPipelineConfig(order="prompt"))
OTHERS = (AsynchronousConfig(max_staleness=2, order="completion"), AsynchronousConfig(max_staleness=1))


def check(folder: Path, schedule, kills: int, seed: int) -> None:
    """Kill, resume, and compare with a run that nothing disturbed."""
    command = [sys.executable, "-m", killed_driver.__name__, str(folder), schedule.model_dump_json(), str(kills)]
    script = subprocess.run([*command, str(seed)], capture_output=True, text=True, check=False)
    assert script.returncode == 0, script.stderr[-3000:]
    found = json.loads(script.stdout)
    assert found["killed"] >= 1
    names = [tuple(name) for name in found["learnt"]]
    assert sorted(names) == [(0, i, g, n) for i in range(4) for g in range(2) for n in range(8)]
    counts = found["counts"]
    ended = sum(count for name, count in counts.items() if name == "trained" or name.startswith("dropped/"))
    assert (ended, counts["open"]) == (len(names), 0)
    assert counts["dispatched"] == ended + counts.get("requeued", 0)
    assert found["is_same"] or schedule in OTHERS


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [OneOffPipelineConfig(), OTHERS[0]], ids=name_of)
def test_a_driver_that_is_killed_twice_loses_nothing(tmp_path: Path, schedule):
    check(tmp_path, schedule, kills=2, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("schedule", [*REPEATABLE, *OTHERS], ids=name_of)
def test_a_driver_that_is_killed_at_many_moments_loses_nothing(tmp_path: Path, schedule, seed):
    check(tmp_path, schedule, kills=8, seed=seed)
