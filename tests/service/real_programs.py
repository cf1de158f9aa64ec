"""About 200 real programs, and hostile ones, with their tests and the verdicts of the judge on this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob, LocalJudge

from .conftest import DEADLINE_S

HOSTILE = {
    "a crash": "import os; os.abort()",
    "an exception": "raise ValueError",
    "an exit": "import sys; sys.exit(1)",
    "an early end": "import os; os._exit(0)",
    "no Python": "print(",
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(100)",
    "a flood": "while True: print('x' * 10000)",
    "a flood of errors": "import sys\nwhile True: sys.stderr.write('x' * 10000)",
    "a hunger": "x = []\nwhile True: x.append(bytearray(1 << 30))",  # ends at once, however slow the machine is
    "a fork": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
}
LIMIT_S = 1.0
Case = tuple[str, Problem, str]


def problem_of(cases: list[tuple[str, str]], id: str) -> Problem:
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases])
    return Problem("", tests, id=id, profile="plain", time_limit_s=LIMIT_S, source="real")


def real_programs(data: Path) -> list[Case]:
    """Name, problem and source."""
    found: list[Case] = []
    with gzip.open(data / "lcb_stdin_samples_o1mini.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            cases = [(case["input"], case["output"]) for case in record["sample_tests"]]
            found.append((f"o1-mini {number}", problem_of(cases, record["question_id"]), record["code"]))
    with gzip.open(data / "apps_train_5_ondisk.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            tests = json.loads(record["files"]["input_output.json"])
            if "fn_name" in tests:
                continue
            cases = list(zip(tests["inputs"], tests["outputs"], strict=True))[:1]
            problem = problem_of(cases, record["problem"])
            sources = json.loads(record["files"]["solutions.json"])
            sources += [one["code"] for one in json.loads(record["files"]["gen_solutions.json"])[:20]]
            for number, source in enumerate(sources):
                found.append((f"APPS {record['problem']}.{number}", problem, source))
    loops = problem_of([("3 4\n", "7\n")], "sum")
    return found + [(name, loops, source) for name, source in HOSTILE.items()]


def local_verdicts(programs: list[Case], judge: JudgeConfig) -> dict[str, Verdict]:
    """The verdicts of a judge on this machine with these settings, all tests, by name."""
    with LocalJudge(SandboxConfig(output_limit_mb=1), judge) as here:
        futures = {
            name: here.submit(JudgeJob(problem, Program(source), stop_at_failure=False))
            for name, problem, source in programs
        }
        return {name: future.result(DEADLINE_S) for name, future in futures.items()}


def asked(programs: list[Case], ask: Callable[[Case], object]) -> dict[str, object]:
    with ThreadPoolExecutor(16) as threads:
        return dict(zip((name for name, _, _ in programs), threads.map(ask, programs), strict=True))
