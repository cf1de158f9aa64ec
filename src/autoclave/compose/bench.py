"""Measure how many programs a second the judge of this machine judges, by kind of problem."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path

from autoclave.config import ServeConfig
from autoclave.core import CallTests, CheckTests, HostError, Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.core.problem import CallCase
from autoclave.judge import JudgeJob, ProcessJudge
from autoclave.sandbox.watch import descendants

_STDIN = StdinTests("stdin", [StdinCase(f"{i} 4\n", f"{i + 4}\n") for i in range(15)])
_CALL = CallTests("call", "add", [CallCase([i, 4], i + 4) for i in range(15)])
_CHECK = CheckTests("check", "add", "def check(add):\n    assert add(3, 4) == 7", "check(add)")
_ADD = "def add(a, b):\n    return a + b"
_CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
SAMPLES = (
    Problem("", _STDIN, solutions=["print(sum(map(int, input().split())))"], profile="plain"),
    Problem("", _CALL, solutions=[_ADD], profile="plain"),
    Problem("", _CHECK, solutions=[_ADD], profile="plain"),
    Problem("", _STDIN, solutions=[_CPP], language="cpp"),
)
"""A problem of each kind, with 15 tests where the kind has several."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Programs of one kind: how many a second, accepted ones, CPU seconds of their tests, and resident memory."""

    kind: str
    num_judged: int
    num_accepted: int
    per_s: float
    per_s_and_worker: float
    cpu_s: float
    worker_mb: float
    program_mb: float


def measure(config: ServeConfig, problems: Iterable[Problem], seconds: float) -> Iterator[Rate]:
    """Judge the solutions of problems for so many seconds a kind; kinds that this host cannot judge are left out."""
    kinds: dict[str, list[JudgeJob]] = {}
    workers = config.judge.workers or len(os.sched_getaffinity(0))
    with ProcessJudge(config.sandbox, config.judge) as judge:
        for problem in problems:
            kind = problem.tests.kind if problem.language == "python" else f"{problem.tests.kind}, {problem.language}"
            try:
                judge.check(problem)
            except HostError:
                continue
            jobs = [JudgeJob(problem, Program(text, problem.language)) for text in problem.solutions]
            kinds.setdefault(kind, []).extend(jobs)
        for kind, jobs in kinds.items():
            if jobs:
                yield _rate(judge, kind, jobs, workers, seconds)


def _rate(judge: ProcessJudge, kind: str, jobs: list[JudgeJob], workers: int, seconds: float) -> Rate:
    numbers, verdicts = itertools.count(), list[Verdict]()

    def submit() -> Future[Verdict]:
        """Submit the next program, which differs from all others: equal ones are judged once."""
        number = next(numbers)
        job = jobs[number % len(jobs)]
        ending = f"\n{'#' if job.program.language == 'python' else '//'} {number}"
        return judge.submit(replace(job, program=replace(job.program, source=job.program.source + ending)))

    pending = {submit() for _ in range(4 * workers)}
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or not verdicts:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        verdicts += [future.result() for future in done]
        pending |= {submit() for _ in done}
    memory = _resident_mb() / workers
    for future in pending:
        future.cancel()
    tests = [test for verdict in verdicts for test in verdict.tests]
    rate = len(verdicts) / took
    cpu_s = sum(test.cpu_s for test in tests) / len(verdicts)
    accepted = sum(verdict.is_accepted for verdict in verdicts)
    most_mb = max((test.memory_mb for test in tests), default=0.0)
    return Rate(kind, len(verdicts), accepted, rate, rate / workers, cpu_s, memory, most_mb)


def _resident_mb() -> float:
    """Return the proportional memory of all processes below this one, in MiB."""
    total_kb = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024
