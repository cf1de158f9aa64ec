"""Verdict of the judge on a program: pass, fail, invalid submission, or no verdict."""

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ConfigDict


class Status(StrEnum):
    """Status of a program, or of one test. The first failing test decides for the program."""

    ACCEPTED = "accepted"
    """Every test passed."""
    WRONG_ANSWER = "wrong_answer"
    """It ended normally with a result that does not match."""
    RUNTIME_ERROR = "runtime_error"
    """Non-zero exit, a signal, an exception, or a limit that has no status of its own; the message says which."""
    COMPILE_ERROR = "compile_error"
    """The source does not compile; no test ran."""
    TIME_LIMIT = "time_limit"
    """CPU or wall-clock limit of a test."""
    MEMORY_LIMIT = "memory_limit"
    """Memory limit of a test."""
    OUTPUT_LIMIT = "output_limit"
    """It printed more than the cap."""
    BAD_FORMAT = "bad_format"
    """No program could be extracted from the response; nothing ran."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test. Seconds and MiB are measured from outside of the program."""

    __test__ = False  # not a test class of pytest
    index: int
    status: Status
    cpu_s: float
    wall_s: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault for which there is no verdict. Nothing follows about the program."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's answer for one program.

    Either `status` and `reward` are set and `fault` is None, or the other way round. `reward` is 1.0 exactly when
    accepted. `failing_test` is the index of the first test that failed. `message` never holds test text or expected
    values. `level` is the isolation that the program ran under.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    problem_id: str
    id: str
    status: Status | None
    reward: float | None
    failing_test: int | None
    tests: list[TestResult] = field(default_factory=list[TestResult])
    level: str = ""
    message: str = ""
    fault: Fault | None = None

    @property
    def is_accepted(self) -> bool:
        return self.status is Status.ACCEPTED

    @property
    def passed_share(self) -> float:
        """The share of the tests that ran and passed; 0 where none ran."""
        passed = [test.status is Status.ACCEPTED for test in self.tests]
        return sum(passed) / len(passed) if passed else 0.0

    @staticmethod
    def of(
        status: Status,
        *,
        problem_id: str = "",
        id: str = "",
        failing_test: int | None = None,
        tests: list[TestResult] | None = None,
        level: str = "",
        message: str = "",
    ) -> "Verdict":
        """A verdict with the reward that follows from its status."""
        reward = 1.0 if status is Status.ACCEPTED else 0.0
        return Verdict(problem_id, id, status, reward, failing_test, tests or [], level, message)

    @staticmethod
    def none(fault: Fault, *, problem_id: str = "", id: str = "", level: str = "") -> "Verdict":
        """No verdict: a fault of the infrastructure."""
        return Verdict(problem_id, id, None, None, None, [], level, "", fault)
