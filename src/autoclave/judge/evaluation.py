"""Judge one job in one sandbox: tests in index order, first failure decides, borderline runs repeated alone."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import InputError, Status, TestResult, Verdict
from autoclave.judge.gate import Gate
from autoclave.judge.interface import JudgeJob
from autoclave.judge.kinds import Judgement, TestKind, Trial
from autoclave.judge.limits import RUNS_ALONE, ProblemLimits, limits_of
from autoclave.sandbox import Limits, Sandbox

_CHOICE = re.compile(r"all|longest:([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that passed validation."""

    job: JudgeJob
    kind: TestKind
    indices: tuple[int, ...]
    limits: ProblemLimits


def prepare(job: JudgeJob, kind: TestKind, sandbox: SandboxConfig, judge: JudgeConfig) -> PreparedJob:
    """A job on the tests in `kind`, those of its problem, with all that is needed to run it.

    Raises InputError: it cannot be run; the message names the problem and the field.
    """
    if job.program.language != job.problem.language:
        raise InputError(
            f"problem {job.problem.id!r}: program.language = {job.program.language!r}: "
            f"must be {job.problem.language!r}, as the problem says"
        )
    return PreparedJob(job, kind, chosen_tests(job, kind.input_lengths()), limits_of(job.problem, sandbox, judge))


def chosen_tests(job: JudgeJob, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the tests that a job selects, in order; `lengths` are those of all inputs.

    Raises InputError: the selection is malformed, or there are no tests.
    """
    match = _CHOICE.fullmatch(job.tests)
    if not match:
        raise InputError(f"problem {job.problem.id!r}: tests = {job.tests!r}: must be all or longest:N")
    if not lengths:
        raise InputError(f"problem {job.problem.id!r}: tests.cases = []: a problem needs at least one test")
    if match[1] is None:
        return tuple(range(len(lengths)))
    longest = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))[: int(match[1])]
    return tuple(sorted(longest))


class _Failure(NamedTuple):
    """The first test that failed; without an index, all of them did."""

    failing_test: int | None
    status: Status
    message: str


class Cancelled(Exception):
    """All callers have cancelled the job."""


def _always() -> bool:
    return True


class Evaluation:
    """One attempt at one job. Calls `is_wanted` before each test but the first."""

    def __init__(
        self, prepared: PreparedJob, sandbox: Sandbox, gate: Gate, is_wanted: Callable[[], bool] = _always
    ) -> None:
        self._prepared = prepared
        self._sandbox = sandbox
        self._gate = gate
        self._is_wanted = is_wanted
        job = prepared.job
        self._verdict = partial(Verdict.of, problem_id=job.problem.id, id=job.id, level=sandbox.level)
        self._results: list[TestResult] = []
        self._first_failure: _Failure | None = None

    def run(self) -> Verdict:
        """The verdict.

        Raises:
            HostError: a requirement of the problem's profile or language is missing on this host.
            SandboxFault: a cell died for reasons that are not the program's.
            Cancelled: `is_wanted` returned False.
        """
        with self._gate.shared():  # compiling takes a core, too
            started = self._start(self._prepared.limits.first)
        with started as trial:
            trial.order = self._prepared.indices
            if trial.compile_error is not None:
                return self._verdict(Status.COMPILE_ERROR, message=trial.compile_error)
            return self._run_tests(trial)

    def blame(self, message: str) -> Verdict:
        """Return the verdict after a fault that the program caused: tests without a result have failed."""
        for index in self._prepared.indices[len(self._results) :]:
            self._note(TestResult(index, Status.RUNTIME_ERROR, 0.0, 0.0, 0.0), message)
            if self._prepared.job.stop_at_failure:
                break
        failure = self._first_failure or _Failure(None, Status.RUNTIME_ERROR, message)
        return self._verdict(**failure._asdict(), tests=self._results)

    def _run_tests(self, trial: Trial) -> Verdict:
        for index in self._prepared.indices:
            if self._results and not self._is_wanted():
                raise Cancelled
            judged = self._judge(trial, index)
            self._note(_result(index, judged), judged.message)
            if self._first_failure and self._prepared.job.stop_at_failure:
                break
        if self._first_failure is None:
            return self._verdict(Status.ACCEPTED, tests=self._results)
        return self._verdict(**self._first_failure._asdict(), tests=self._results)

    def _note(self, result: TestResult, message: str) -> None:
        self._results.append(result)
        if result.status is not Status.ACCEPTED and self._first_failure is None:
            self._first_failure = _Failure(result.index, result.status, message)

    def _judge(self, trial: Trial, index: int) -> Judgement:
        with self._gate.shared():
            judged = trial.judge(index)
        if not self._prepared.limits.is_borderline(judged.outcome):
            return judged
        for _ in range(RUNS_ALONE):
            with self._gate.alone(), self._start(self._prepared.limits.exact) as fresh:
                judged = fresh.judge(index)
            if not self._prepared.limits.is_starved(judged.outcome):
                break
        return judged

    def _start(self, limits: Limits) -> Trial:
        return self._prepared.kind.start(self._sandbox, self._prepared.job.program, limits)


def _result(index: int, judged: Judgement) -> TestResult:
    outcome = judged.outcome
    return TestResult(
        index, judged.status, round(outcome.cpu_s, 6), round(outcome.wall_s, 6), round(outcome.memory_mb, 3)
    )
