"""Memory of the judging process over a long batch of programs that print far too much.

The batch runs in a process of its own, whose peak is read when it ends. Cells are other processes and do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from autoclave.core import IsolationError
from autoclave.judge import LocalJudge

LIMIT_MB = 200
BATCH = """
import json, sys
from collections import Counter
from pathlib import Path

from autoclave.config.sandbox import JudgeConfig
from autoclave.core import CallCase, CallTests, Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge, stream


def memory_mb(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def jobs():
    for number in range(int(sys.argv[1])):
        name, problem, source = KINDS[number % len(KINDS)]
        yield JudgeJob(problem, Program(source + f"  # {number}"), name, stop_at_failure=name != "many tests")


few = Problem("s", StdinTests("stdin", [StdinCase("3 4", "7")]), id="few")
many = Problem("s", StdinTests("stdin", [StdinCase("3 4", "7")] * 30), id="many")
call = Problem("s", CallTests("call", "f", [CallCase([3, 4], 7)]), id="call")
large = Problem("s", CallTests("call", "f", [CallCase([], [0] * 300_000)]), id="large")
KINDS = [
    ("right", few, "print(sum(map(int, input().split())))"),
    ("flood", few, "import os\\nfor _ in range(1600): os.write(1, b'x' * 65536)"),
    ("flood of errors", few, "import os\\nfor _ in range(1600): os.write(2, b'x' * 65536)"),
    ("blanks below the cap", few, "import os\\nfor _ in range(250): os.write(1, b' \\\\n' * 32768)"),
    ("words below the cap", few, "import os\\nfor _ in range(250): os.write(1, b'7 ' * 32768)"),
    ("not UTF-8 below the cap", few, "import os\\nfor _ in range(250): os.write(1, b'\\\\xff' * 65536)"),
    ("many tests", many, "print(7)"),
    ("large result", call, "def f(a, b): return 'x' * 15_000_000"),
    ("large result that is expected", large, "def f(): return [0] * 300_000"),
    ("flood of results", call, "def f(a, b): return 'x' * 100_000_000"),
]
with LocalJudge(judge_config=JudgeConfig(workers=2)) as judge:
    first = Counter((job.id, str(verdict.status)) for job, verdict in stream(judge, list(jobs())[: len(KINDS)]))
    before = memory_mb("VmRSS")
    counts = Counter((job.id, str(verdict.status)) for job, verdict in stream(judge, jobs()))
    print(json.dumps({"peak_mb": memory_mb("VmHWM"), "before_mb": before, "after_mb": memory_mb("VmRSS"),
                      "counts": [[*key, count] for key, count in sorted(counts.items())]}))
"""
STATUSES = {
    "right": "accepted",
    "flood": "output_limit",
    "flood of errors": "output_limit",
    "blanks below the cap": "wrong_answer",
    "words below the cap": "wrong_answer",
    "not UTF-8 below the cap": "wrong_answer",
    "many tests": "accepted",
    "large result": "wrong_answer",
    "large result that is expected": "accepted",
    "flood of results": "output_limit",
}


@pytest.fixture(autouse=True, scope="module")
def _has_sandbox() -> None:
    try:
        LocalJudge().close()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")


@pytest.mark.parametrize(
    "num_programs",
    [
        pytest.param(80, marks=pytest.mark.slow),
        pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_a_batch_of_programs_that_print_far_too_much_leaves_the_judge_small(num_programs: int):
    done = subprocess.run([sys.executable, "-c", BATCH, str(num_programs)], capture_output=True, text=True, check=True)
    reported = json.loads(done.stdout)
    share = num_programs // len(STATUSES)
    assert reported["counts"] == sorted([name, status, share] for name, status in STATUSES.items())
    assert reported["peak_mb"] < LIMIT_MB, reported
