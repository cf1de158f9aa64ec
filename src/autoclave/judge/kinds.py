"""How each kind of tests is run and compared. Expected answers stay in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autoclave.core import InputError, Outcome, Problem, Status, StdinTests
from autoclave.judge.comparison import CHECKERS
from autoclave.judge.messages import failure_of
from autoclave.judge.profiles import PROFILES, SCRIPT
from autoclave.sandbox import Cell, Runner


@dataclass(frozen=True, slots=True)
class Judgement:
    """One test, judged."""

    outcome: Outcome
    status: Status
    message: str = ""


class TestKind(Protocol):
    """The tests of one problem, ready to be run in cells."""

    runner: Runner

    def input_lengths(self) -> list[int]:
        """Length of the input of each test, for choosing the longest."""
        ...

    def judge(self, cell: Cell, index: int, num_lines: int) -> Judgement:
        """Run test `index` in `cell`. `num_lines` is the length of the program.

        Raises:
            SandboxFault: the cell died for reasons that are not the program's.
        """
        ...


class StdinKind:
    """Standard input in, standard output compared by a checker."""

    runner = SCRIPT

    def __init__(self, tests: StdinTests, checker: str) -> None:
        self._cases = tests.cases
        self._matches = CHECKERS[checker]

    def input_lengths(self) -> list[int]:
        return [len(case.input) for case in self._cases]

    def judge(self, cell: Cell, index: int, num_lines: int) -> Judgement:
        case = self._cases[index]
        outcome = cell.run(case.input.encode("utf-8", "surrogatepass"))
        failure = failure_of(outcome, num_lines)
        if failure:
            return Judgement(outcome, *failure)
        if self._matches(outcome.stdout.decode("utf-8", "replace"), case.output):
            return Judgement(outcome, Status.ACCEPTED)
        return Judgement(outcome, Status.WRONG_ANSWER, "the output does not match")


def kind_of(problem: Problem) -> TestKind:
    """The tests of `problem`.

    Raises:
        InputError: this judge cannot run them; the message names the problem and the field.
    """
    for field, given, known in (
        ("profile", problem.profile, PROFILES),
        ("checker", problem.checker, CHECKERS),
        ("language", problem.language, ("python",)),
    ):
        if given not in known:
            raise InputError(f"problem {problem.id!r}: {field} = {given!r}: must be one of {', '.join(known)}")
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return StdinKind(tests, problem.checker)
    raise InputError(f"problem {problem.id!r}: tests.kind = {tests.kind!r}: this judge runs stdin and call tests")
