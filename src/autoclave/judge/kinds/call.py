"""A function called with plain data; what it returns is compared here."""

import json
from functools import partial
from typing import Any

from autoclave.core import CallTests, CustomChecker, InputError, Problem, Program, Status
from autoclave.judge.kinds.interface import Judgement, Trial, start_in_one_cell
from autoclave.judge.messages import failure_of, reported_failure
from autoclave.judge.plain_data import MAX_DEPTH, NotPlainError, decode, encode
from autoclave.judge.profiles import Environment
from autoclave.judge.special import Rule, SpecialJudge
from autoclave.judge.values import is_json
from autoclave.sandbox import Cell, Limits, Sandbox

_SMALL_BYTES = 1 << 16
_SPELLING_FACTOR = 16
"""An answer above the small size and that many times longer than the expected value cannot equal it."""

_RESULT = b'["value",'
"""Start of an honest answer. The rest is only read in the cell of the problem's checker."""
_NO_MATCH = (Status.WRONG_ANSWER, "the result does not match")
_FOR_CALLS = "lcb, unordered, float and custom"


class CallKind:
    """One function called in a process of its own per test; its result is compared here."""

    def __init__(
        self, problem: Problem, tests: CallTests, checker: Rule | CustomChecker, environment: Environment
    ) -> None:
        """Validate the tests. Runs nothing.

        Raises InputError: the entry point is not a name, arguments cannot be sent, an expected value is not JSON data,
        or the checker compares only text.
        """
        self._problem_id = problem.id
        self._environment = environment
        self._tests = tests
        self._checker = checker
        if isinstance(checker, Rule) and checker.matches_value is None:
            raise self._refusal(f"checker = {problem.checker!r}: compares text; for calls there are {_FOR_CALLS}")
        if not all(part.isidentifier() for part in tests.entry_point.split(".")):
            raise self._refusal(
                f"tests.entry_point = {tests.entry_point!r}: must be a name such as 'f' or 'Solution.f'"
            )
        for index, case in enumerate(tests.cases):
            if not _is_encodable(case.output) or not is_json(case.output):
                raise self._refusal(f"tests.cases[{index}].output: must be JSON data, nested at most {MAX_DEPTH} deep")
        self._lengths = [len(self.request(index)) for index in range(len(tests.cases))]

    def num_tests(self) -> int:
        return len(self._tests.cases)

    def input_lengths(self) -> list[int]:
        return self._lengths

    def request(self, index: int) -> bytes:
        """Return the frame that requests call `index` of a program. Raises InputError: an argument cannot be sent."""
        tests = self._tests
        try:
            arguments = tests.cases[index].arguments
            return encode({"entry_point": tests.entry_point, "preamble": tests.preamble, "arguments": arguments})
        except NotPlainError as error:
            raise self._refusal(f"tests.cases[{index}].arguments cannot be sent to a program: {error}") from None

    def start(self, sandbox: Sandbox, program: Program, limits: Limits) -> Trial:
        special = SpecialJudge.of(self._checker, sandbox, self._problem_id, limits)
        return start_in_one_cell(self._environment, sandbox, program, limits, partial(self._judge, special), special)

    def _judge(self, special: SpecialJudge | None, cell: Cell, index: int, source: str) -> Judgement:
        outcome, answer = cell.exchange(self.request(index))
        failure = failure_of(outcome, source)
        if failure:
            return Judgement(outcome, *failure)
        if answer is None:
            return Judgement(outcome, Status.RUNTIME_ERROR, "it ended before the call returned")
        if special and answer.startswith(_RESULT):
            case = self._tests.cases[index]
            return Judgement(outcome, *special.judge("call", case.arguments, case.output, answer))
        return Judgement(outcome, *self._compare(answer, index, source))

    def _compare(self, answer: bytes, index: int, source: str) -> tuple[Status, str]:
        expected = self._tests.cases[index].output
        if len(answer) > _SMALL_BYTES and len(answer) > _SPELLING_FACTOR * len(json.dumps(expected)):
            return _NO_MATCH  # parsing it would cost the judge time and memory
        match _decoded(answer):
            case ["value", result]:
                return (Status.ACCEPTED, "") if self._matches(result, expected) else _NO_MATCH
            case ["not plain", _]:
                return Status.WRONG_ANSWER, "the result is not plain data (numbers, text, bytes, containers)"
            case ["error", str(account)]:
                return reported_failure(account, source)
            case _:
                return Status.RUNTIME_ERROR, "it answered the call with malformed data"

    def _matches(self, result: Any, expected: Any) -> bool:
        checker = self._checker
        return isinstance(checker, Rule) and bool(
            checker.matches_value and checker.matches_value(result, expected, self._environment.value_rule)
        )

    def _refusal(self, what: str) -> InputError:
        return InputError(f"problem {self._problem_id!r}: {what}")


def _decoded(answer: bytes) -> Any:
    try:
        return decode(answer)
    except NotPlainError:
        return None


def _is_encodable(value: Any) -> bool:
    try:
        encode(value)
    except NotPlainError:
        return False
    return True
