"""The protocol of every judge, local or remote: a job goes in, a future of a verdict comes out."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, Self

from autoclave.config.levels import Level
from autoclave.core import Problem, Program, Trace, Verdict


@dataclass(frozen=True, slots=True)
class JudgeJob:
    """One program to be judged on the tests of one problem.

    `tests` chooses: `all`, or `longest:N` for the N tests with the longest inputs (ties by index), in index order.
    With `stop_at_failure` the first failing test ends the job; without it every test has a result.
    """

    problem: Problem
    program: Program
    id: str = ""
    tests: str = "all"
    stop_at_failure: bool = True


class Judge(Protocol):
    """Turns jobs into verdicts. Safe to use from several threads."""

    @property
    def level(self) -> Level:
        """Isolation that every program runs under."""
        ...

    def check(self, problem: Problem) -> None:
        """Make sure that programs for `problem` can be judged here. Runs nothing.

        Raises:
            InputError: they cannot: its tests, checker, profile or language are malformed or unknown here.
            HostError: a requirement of its profile or language is missing on this host.
        """

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        """Queue a job. The future holds a verdict; after repeated faults, a verdict with `fault` set.

        Raises:
            InputError: at once, when the problem cannot be judged, as for `check`.
            HostError: likewise.
        """
        ...

    def state(self) -> str:
        """Describe how much waits for it and how much it has judged; from any thread, at once."""
        ...

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        """Queue one more run of the job's program, on test `index`, for the final values of its variables.

        The future holds a trace, or raises `JudgeFault` after repeated faults. Verdicts do not depend on traces.

        Raises:
            InputError: at once, when the problem cannot be judged, there is no such test, or its tests run no program
                whose variables could be seen.
        """
        ...

    def close(self) -> None:
        """Cancel what is queued, end what runs, and free all processes."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
