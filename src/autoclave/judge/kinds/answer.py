"""A final answer compared with the expected one; no program runs.

Mathematics and values are compared in a cell, because their parsers are large and the text is hostile; two plain
integers need neither parser nor cell.
The cell keeps nothing between two answers: each comparison is a process of its own, gets the expected answer and the
answer, and returns one word. The cell stays open for the next answer (`SpareCells`). The order decides the cause of a
failure: one that happens before the cell receives the answer is not a failure of the answer.
"""

import ast
import re

from autoclave.core import AnswerTests, Ended, HostError, InputError, Outcome, Problem, Program, SandboxFault, Status
from autoclave.judge.kinds.interface import Judgement, Trial
from autoclave.judge.messages import failure_of
from autoclave.judge.profiles import ANSWER_CHECKER, PROFILES, mathematics_profile
from autoclave.judge.spare_cells import Held, LentCell, SpareCells
from autoclave.judge.special import refuse_interference, roomy
from autoclave.sandbox import Limits, Profile, Sandbox

_NO_CHECKER = "lcb"
"""The default of problems, which has no effect on answers."""
_LEAST_MEMORY_MB = 512
_SMALL = 4096
_SPELLING_FACTOR = 16
"""An answer of more characters than the small size and that many times longer than the expected one is not read."""
_INTEGER = re.compile(r"-?[0-9]{1,15}")
"""Short enough to parse in no time."""
_READY = b"ready"
_WORDS = {
    b"true": (Status.ACCEPTED, ""),
    b"false": (Status.WRONG_ANSWER, "the answer does not match"),
}
_NOTHING_RAN = Outcome(Ended.EXITED, 0, None, b"", b"", 0, 0, 0.0, 0.0, 0.0)


class AnswerKind:
    """One test: the comparison. The answer is judged in place of a program."""

    def __init__(self, problem: Problem, tests: AnswerTests, spare_cells: SpareCells) -> None:
        """Validate the tests. Runs nothing.

        Raises InputError: the expected answer is blank or, for `value`, not a literal; or the problem has a checker.
        HostError: the library that compares mathematics is not installed.
        """
        self._problem_id = problem.id
        self._tests = tests
        self._spare_cells = spare_cells
        if problem.checker != _NO_CHECKER:
            given = problem.checker if isinstance(problem.checker, str) else problem.checker.name
            raise self._refusal(f"checker = {given!r}: answers have a comparator instead; leave the checker out")
        if not tests.expected.strip():
            raise self._refusal(f"tests.expected = {tests.expected!r}: must not be blank, or nothing could match it")
        if tests.comparator == "value" and not _is_value(tests.expected):
            raise self._refusal(
                f"tests.expected = {tests.expected!r}: must be a Python literal such as [1, 'a'], because "
                "tests.comparator = 'value'; text is compared by 'text'"
            )
        self._profile = self._mathematics() if tests.comparator == "math" else PROFILES["plain"]

    def num_tests(self) -> int:
        return 1

    def input_lengths(self) -> list[int]:
        return [len(self._tests.expected)]

    def start(self, sandbox: Sandbox, program: Program, limits: Limits) -> Trial:
        answer, expected = program.source, self._tests.expected
        if len(answer) > _SMALL and len(answer) > _SPELLING_FACTOR * len(expected):
            return _SettledTrial(Status.WRONG_ANSWER, "the answer is far longer than what is expected")
        if self._tests.comparator == "text":
            return _SettledTrial(*_WORDS[b"true" if answer.split() == expected.split() else b"false"])
        if self._tests.comparator == "math" and _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(answer):
            return _SettledTrial(*_WORDS[b"true" if int(answer) == int(expected) else b"false"])
        held = Held(self._tests.comparator.encode(), self._profile, roomy(limits, _LEAST_MEMORY_MB), ANSWER_CHECKER)
        lent = self._spare_cells.take(sandbox, held)
        if lent.cell.compile_error is not None:
            lent.cell.close()
            raise SandboxFault(f"the cell of comparisons does not start: {lent.cell.compile_error}")
        return _ComparedTrial(self._problem_id, lent, expected, answer)

    def _mathematics(self) -> Profile:
        try:
            return mathematics_profile()
        except HostError as error:
            raise HostError(f"problem {self._problem_id!r}: tests.comparator = 'math': {error}") from None

    def _refusal(self, what: str) -> InputError:
        return InputError(f"problem {self._problem_id!r}: {what}")


class _SettledTrial(Trial):
    """An answer that is judged without a cell."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__()
        self._judgement = Judgement(_NOTHING_RAN, status, message)

    def judge(self, index: int) -> Judgement:
        return self._judgement


class _ComparedTrial(Trial):
    """An answer, and the cell that compares it."""

    def __init__(self, problem_id: str, lent: LentCell, expected: str, answer: str) -> None:
        super().__init__(lent)
        self._problem_id = problem_id
        self._lent = lent
        self._expected = expected
        self._answer = answer

    def judge(self, index: int) -> Judgement:
        """Compare.

        Raises InputError: the expected answer cannot be parsed, or not within the limits. SandboxFault: the cell
        failed, or used up its wall time.
        """
        self._lent.is_as_before = False
        session = self._lent.cell.session()
        try:
            session.send(self._expected.encode("utf-8", "surrogatepass"))
            is_ready = session.receive() == _READY
            session.send(self._answer.encode("utf-8", "replace") if is_ready else b"")
            word = session.receive() if is_ready else None
        finally:
            outcome = session.close()
        self._lent.is_as_before = outcome.ended is Ended.EXITED
        refuse_interference(outcome, "a comparison")
        if not is_ready:
            self._blame_expected(outcome)
        return Judgement(outcome, *self._status(word, outcome))

    def _blame_expected(self, outcome: Outcome) -> None:
        """Raise for a comparison that ended before it received the answer: by the problem, or else by the cell."""
        _, what = failure_of(outcome, "") or (None, "it ended early")
        if outcome.ended is Ended.SIGNALLED:
            raise SandboxFault(f"the cell of a comparison died ({what})")
        raise InputError(f"problem {self._problem_id!r}: tests.expected cannot be read: {what}")

    def _status(self, word: bytes | None, outcome: Outcome) -> tuple[Status, str]:
        """Return status and message of the answer. An answer that makes the comparison fail does not match."""
        failure = failure_of(outcome, "")
        if failure is None and word in _WORDS:
            return _WORDS[word]
        status, what = failure or (Status.RUNTIME_ERROR, "it ended early")
        status = Status.WRONG_ANSWER if status is Status.RUNTIME_ERROR else status
        return status, f"the comparison fails on the answer: {what}"


def _is_value(text: str) -> bool:
    try:
        ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
