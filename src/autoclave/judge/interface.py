"""The protocol of every judge, local or remote: a job goes in, a future of a verdict comes out."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from autoclave.config.sandbox import Level
from autoclave.core import Problem, Program, Verdict


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

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        """Queue a job. The future holds a verdict; after repeated faults, a verdict with `fault` set.

        Raises:
            InputError: at once, when the problem cannot be judged (its tests are malformed or unknown here).
        """
        ...

    def close(self) -> None:
        """Cancel what is queued, end what runs, and free all processes."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
