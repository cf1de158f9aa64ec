"""The same programs get the same verdicts every time: run again, and on a machine that is far too busy.

Real references and broken programs of public sets where they are to be had, and always programs that use most of their
time limit or a little more than it. In part by default; with AUTOCLAVE_SOAK=1 every record, ten times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autoclave.config.languages import ProfileConfig
from autoclave.config.sandbox import JudgeConfig
from autoclave.core import IsolationError, Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge, stream
from tests.real_problems import DATA, human_eval, human_eval_pack, leet_code, mbpp, records

LIMIT_S = 1.0
LIMITED = Problem("", StdinTests("stdin", [StdinCase("x", "done")] * 2), id="limited", time_limit_s=LIMIT_S)
NEAR_THE_LIMIT = {
    "uses three quarters": "import time\nwhile time.process_time() < 0.75: pass\nprint('done')",
    "uses nearly all": "import time\nwhile time.process_time() < 0.9: pass\nprint('done')",
    "uses a little too much": "import time\nwhile time.process_time() < 1.1: pass\nprint('done')",
    "uses far too much": "while True: pass",
    "sleeps most of the time": "import time; time.sleep(2.5); print('done')",
    "sleeps too long": "import time; time.sleep(30)",
    "works in threads": "import threading, time\ndef work():\n    while time.process_time() < 0.8: pass\n"
    "threads = [threading.Thread(target=work) for _ in range(4)]\n[t.start() for t in threads]\n"
    "[t.join() for t in threads]\nprint('done')",
    "works in children": "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n"
    "        while time.process_time() < 0.2: pass\n        os._exit(0)\n[os.wait() for _ in range(4)]\nprint('done')",
    "much memory": "x = bytearray(300 << 20); print('done')",
    "too much memory": "x = bytearray(600 << 20); print('done')",
    "prints much": "print('x' * 1_000_000)",
    "fails": "1 / 0",
}
EXPECTED = {
    "uses three quarters": "accepted",
    "uses nearly all": "accepted",
    "uses a little too much": "time_limit",
    "uses far too much": "time_limit",
    "sleeps most of the time": "accepted",
    "sleeps too long": "time_limit",
    "works in threads": "accepted",
    "works in children": "accepted",
    "much memory": "accepted",
    "too much memory": "memory_limit",
    "prints much": "wrong_answer",
    "fails": "runtime_error",
}
SORTED = {"plain_sorted": ProfileConfig(base="plain", packages=("sortedcontainers",))}


def all_jobs(every: int) -> list[JudgeJob]:
    """Programs near their limits, and every so many of the real ones."""
    jobs = [JudgeJob(LIMITED, Program(source), name) for name, source in NEAR_THE_LIMIT.items()]
    pairs: list[tuple[Problem, str]] = []
    if DATA:
        pairs += [(human_eval(r), r["prompt"] + r["canonical_solution"]) for r in records("humaneval")]
        pairs += [(mbpp(r), r["code"].replace("\r\n", "\n")) for r in records("mbpp")]
        pairs += [
            (leet_code(r), r["completion"])
            for r in records("leetcode_v020_dev300")
            if "sortedcontainers" not in r["completion"]
        ]
        for kind in ("canonical_solution", "buggy_solution"):
            pairs += [(human_eval_pack(r), r["prompt"] + r[kind]) for r in records("humanevalpack_python_even")]
    return jobs + [JudgeJob(problem, Program(s), f"{problem.id}#{i}") for i, (problem, s) in enumerate(pairs[::every])]


def verdicts(jobs: list[JudgeJob], workers: int) -> dict[str, tuple[str, int | None, str]]:
    """Status, failing test and message by the name of the job."""
    try:
        judge = LocalJudge(judge_config=JudgeConfig(workers=workers, time_limit_range=(0.5, 12.0), profiles=SORTED))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with judge:
        return {job.id: (str(v.status), v.failing_test, v.message) for job, v in stream(judge, jobs)}


@contextmanager
def busy_machine(hogs: int) -> Iterator[None]:
    """As many processes that never rest."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(hogs)]
    try:
        yield
    finally:
        for hog in running:
            hog.send_signal(signal.SIGKILL)
            hog.wait()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_runs_give_the_same_verdicts():
    jobs = all_jobs(every=1)
    first = verdicts(jobs, workers=0)
    for _ in range(9):
        assert verdicts(jobs, workers=0) == first


@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_a_machine_that_is_far_too_busy_changes_no_verdict(every: int):
    jobs = all_jobs(every)
    alone = verdicts(jobs, workers=1)
    assert {name: alone[name][0] for name in EXPECTED} == EXPECTED
    cores = len(os.sched_getaffinity(0))
    with busy_machine(hogs=2 * cores):
        assert verdicts(jobs, workers=8 * cores) == alone
