"""Judge one job in one sandbox: tests in index order, first failure decides, borderline runs repeated alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import InputError, Problem, Status, TestResult, Verdict
from autoclave.judge.gate import Gate
from autoclave.judge.interface import JudgeJob
from autoclave.judge.kinds import Judgement, TestKind, kind_of
from autoclave.judge.limits import ProblemLimits, limits_of
from autoclave.judge.profiles import PROFILES
from autoclave.sandbox import Cell, Limits, Sandbox

_CHOICE = re.compile(r"all|longest:([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job whose problem was found fit to be judged."""

    job: JudgeJob
    kind: TestKind
    indices: tuple[int, ...]
    limits: ProblemLimits


def prepare(job: JudgeJob, sandbox: SandboxConfig, judge: JudgeConfig) -> PreparedJob:
    """Check that this judge can run the job.

    Raises:
        InputError: it cannot; the message names the problem and the field.
    """
    if job.program.language != job.problem.language:
        raise InputError(
            f"problem {job.problem.id!r}: program.language = {job.program.language!r}: "
            f"must be {job.problem.language!r}, as the problem says"
        )
    kind = kind_of(job.problem)
    return PreparedJob(job, kind, _chosen(job, kind), limits_of(job.problem, sandbox, judge))


def _chosen(job: JudgeJob, kind: TestKind) -> tuple[int, ...]:
    match = _CHOICE.fullmatch(job.tests)
    if not match:
        raise InputError(f"problem {job.problem.id!r}: tests = {job.tests!r}: must be all or longest:N")
    if not kind.num_tests():
        raise InputError(f"problem {job.problem.id!r}: tests.cases = []: a problem needs at least one test")
    if match[1] is None:
        return tuple(range(kind.num_tests()))
    lengths = kind.input_lengths()
    longest = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))[: int(match[1])]
    return tuple(sorted(longest))


class Evaluation:
    """One attempt at one job."""

    def __init__(self, prepared: PreparedJob, sandbox: Sandbox, gate: Gate) -> None:
        self._prepared = prepared
        self._sandbox = sandbox
        self._gate = gate
        self._num_lines = prepared.job.program.source.count("\n") + 1

    def run(self) -> Verdict:
        """The verdict.

        Raises:
            SandboxFault: a cell died for reasons that are not the program's.
        """
        with self._open(self._prepared.limits.first) as cell:
            if cell.compile_error is not None:
                return self._verdict(Status.COMPILE_ERROR, message=cell.compile_error)
            return self._run_tests(cell)

    def _run_tests(self, cell: Cell) -> Verdict:
        results: list[TestResult] = []
        first_failure: tuple[int, Judgement] | None = None
        for index in self._prepared.indices:
            judged = self._judge(cell, index)
            results.append(_result(index, judged))
            if judged.status is not Status.ACCEPTED:
                first_failure = first_failure or (index, judged)
                if self._prepared.job.stop_at_failure:
                    break
        if first_failure is None:
            return self._verdict(Status.ACCEPTED, tests=results)
        index, judged = first_failure
        return self._verdict(judged.status, failing_test=index, tests=results, message=judged.message)

    def _judge(self, cell: Cell, index: int) -> Judgement:
        with self._gate.shared():
            judged = self._prepared.kind.judge(cell, index, self._num_lines)
        if not self._prepared.limits.is_borderline(judged.outcome):
            return judged
        with self._gate.alone(), self._open(self._prepared.limits.exact) as fresh:
            return self._prepared.kind.judge(fresh, index, self._num_lines)

    def _open(self, limits: Limits) -> Cell:
        job = self._prepared.job
        return self._sandbox.open(job.program, PROFILES[job.problem.profile], limits, self._prepared.kind.runner)

    def _verdict(
        self,
        status: Status,
        *,
        failing_test: int | None = None,
        tests: list[TestResult] | None = None,
        message: str = "",
    ) -> Verdict:
        problem: Problem = self._prepared.job.problem
        return Verdict.of(
            status,
            problem_id=problem.id,
            id=self._prepared.job.id,
            failing_test=failing_test,
            tests=tests,
            level=self._sandbox.level,
            message=message,
        )


def _result(index: int, judged: Judgement) -> TestResult:
    outcome = judged.outcome
    return TestResult(
        index, judged.status, round(outcome.cpu_s, 6), round(outcome.wall_s, 6), round(outcome.memory_mb, 3)
    )
