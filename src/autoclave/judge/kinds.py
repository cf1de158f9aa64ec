"""How each kind of tests is run and compared. Expected answers stay in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.core import CallTests, InputError, Outcome, Problem, Status, StdinTests
from autoclave.judge.comparison import CHECKERS
from autoclave.judge.messages import exception_message, failure_of
from autoclave.judge.plain_data import NotPlainError, decode, encode
from autoclave.judge.profiles import CALL_SERVER, PROFILES, SCRIPT
from autoclave.judge.values import matches_value
from autoclave.sandbox import Cell, Runner

_SMALL_BYTES = 1 << 16
_SPELLING_FACTOR = 16
"""An answer above the small size and so many times longer than what is expected is no other spelling of it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One test, judged."""

    outcome: Outcome
    status: Status
    message: str = ""


class TestKind(Protocol):
    """The tests of one problem, ready to be run in cells."""

    runner: Runner

    def num_tests(self) -> int:
        """How many there are."""
        ...

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

    def num_tests(self) -> int:
        return len(self._cases)

    def judge(self, cell: Cell, index: int, num_lines: int) -> Judgement:
        case = self._cases[index]
        outcome = cell.run(case.input.encode("utf-8", "surrogatepass"))
        failure = failure_of(outcome, num_lines)
        if failure:
            return Judgement(outcome, *failure)
        if self._matches(outcome.stdout.decode("utf-8", "replace"), case.output):
            return Judgement(outcome, Status.ACCEPTED)
        return Judgement(outcome, Status.WRONG_ANSWER, "the output does not match")


class CallKind:
    """One function called in a process of its own per test; its result is compared here."""

    runner = CALL_SERVER

    def __init__(self, problem_id: str, tests: CallTests) -> None:
        self._problem_id = problem_id
        self._tests = tests

    def input_lengths(self) -> list[int]:
        return [len(self._request(index)) for index in range(len(self._tests.cases))]

    def num_tests(self) -> int:
        return len(self._tests.cases)

    def judge(self, cell: Cell, index: int, num_lines: int) -> Judgement:
        session = cell.session()
        try:
            session.send(self._request(index))
            answer = session.receive()
        finally:
            outcome = session.close()
        failure = failure_of(outcome, num_lines)
        if failure:
            return Judgement(outcome, *failure)
        if answer is None:
            return Judgement(outcome, Status.RUNTIME_ERROR, "it ended before the call returned")
        return Judgement(outcome, *self._compare(answer, index, num_lines))

    def _compare(self, answer: bytes, index: int, num_lines: int) -> tuple[Status, str]:
        expected = self._tests.cases[index].output
        if len(answer) > _SMALL_BYTES and len(answer) > _SPELLING_FACTOR * len(json.dumps(expected)):
            return Status.WRONG_ANSWER, "the result does not match"  # parsing it would cost the judge time and memory
        match _decoded(answer):
            case ["value", result]:
                if matches_value(result, expected):
                    return Status.ACCEPTED, ""
                return Status.WRONG_ANSWER, "the result does not match"
            case ["not plain", _]:
                return Status.WRONG_ANSWER, "the result is not plain data (numbers, text, bytes, containers)"
            case ["error", str(account)]:
                return Status.RUNTIME_ERROR, exception_message(account, num_lines)
            case _:
                return Status.RUNTIME_ERROR, "it answered the call with malformed data"

    def _request(self, index: int) -> bytes:
        tests = self._tests
        try:
            arguments = tests.cases[index].arguments
            return encode({"entry_point": tests.entry_point, "preamble": tests.preamble, "arguments": arguments})
        except NotPlainError as error:
            raise InputError(
                f"problem {self._problem_id!r}: tests.cases[{index}].arguments cannot be sent to a program: {error}"
            ) from None


def _decoded(answer: bytes) -> Any:
    try:
        return decode(answer)
    except NotPlainError:
        return None


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
    if isinstance(tests, CallTests):
        return CallKind(problem.id, tests)
    raise InputError(f"problem {problem.id!r}: tests.kind = {tests.kind!r}: this judge runs stdin and call tests")
