"""A busy machine does not shorten the wall limit: what a test waits for a core is given back to it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator

import pytest

from autoclave.core import Ended

BURN = "import time\nwhile time.process_time() < {}: pass\nprint('done')"


@pytest.fixture
def one_core() -> Generator[int, None, None]:
    """The core that this thread, and with it every zygote it starts, is kept on meanwhile."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@contextlib.contextmanager
def busy(core: int, num_hogs: int) -> Generator[None, None, None]:
    hogs = [
        subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-Sc", "while True: pass"], start_new_session=True
        )
        for _ in range(num_hogs)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_a_test_that_waits_for_a_core_gets_the_time_back(run, one_core: int):
    with busy(one_core, 3):
        outcome = run(BURN.format(0.6), cpu_s=3, wall_s=1)  # four share the core: it takes more than two seconds
    assert outcome.wait_s > 0.3
    assert outcome.wall_s > 0.9 + min(outcome.wait_s, 1) or (outcome.ended, outcome.stdout) == (Ended.EXITED, b"done\n")


def test_a_test_that_sleeps_gets_nothing_back_on_a_busy_machine(run, one_core: int):
    with busy(one_core, 3):
        outcome = run("import time; time.sleep(60)", wall_s=2)
    assert outcome.ended is Ended.WALL_TIME
    assert outcome.wait_s < 1


def test_no_more_than_the_limit_is_given_back(run, one_core: int):
    with busy(one_core, 9):
        started = time.monotonic()
        outcome = run(BURN.format(30), cpu_s=60, wall_s=0.5)
    assert outcome.ended is Ended.WALL_TIME
    assert outcome.wait_s > 0.5  # so the judge knows that it decides nothing
    assert time.monotonic() - started < 100  # all of it takes five minutes


def test_a_judge_that_comes_late_does_not_let_a_session_run_into_the_wall(open_cell):
    source = "import os\nif os.read(3, 5): os.write(3, b'\\0\\0\\0\\2hi')"
    with open_cell(source, wall_s=1) as cell:
        session = cell.session()
        time.sleep(1.5)  # the program waits for a frame; this process is busy elsewhere for longer than the limit
        session.send(b"x")
        assert session.receive() == b"hi"
        assert session.close().ended is Ended.EXITED
