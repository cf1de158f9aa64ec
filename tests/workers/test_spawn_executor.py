"""Processes of this machine: nothing outlives its driver, and a closed pool leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.workers import abandoned_driver
from tests.workers.sample_workers import Clerk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
DEADLINE_S = 60.0


def runs(process: int) -> bool:
    """Whether a process is there and no zombie that waits for its parent."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def all_gone(processes: list[int]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while any(map(runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)  # until they have ended
    return not any(map(runs, processes))


def test_a_driver_killed_with_9_leaves_no_worker_and_nothing_that_a_worker_started():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    driver = subprocess.Popen(
        [sys.executable, abandoned_driver.__file__], stdout=subprocess.PIPE, text=True, env=environment
    )
    with driver:
        processes = json.loads(driver.stdout.readline())
        assert all(map(runs, processes))
        driver.kill()
        assert all_gone(processes)


def test_closing_a_pool_ends_its_workers_and_what_they_started():
    pool = ResourcePool("main", SpawnExecutor([()]))
    try:
        group = WorkerGroup(pool, Clerk)
        processes = [group.ranks().result()[0][1], group.start_a_process().result()]
        assert all(map(runs, processes))
    finally:
        pool.close()
    assert all_gone(processes)
