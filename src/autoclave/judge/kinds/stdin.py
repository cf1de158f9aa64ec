"""Standard input in, standard output compared by the problem's checker."""

from functools import partial

from autoclave.core import CustomChecker, Problem, Program, Status, StdinTests
from autoclave.judge.checkers import Rule
from autoclave.judge.kinds.interface import Judgement, Trial, start_in_one_cell
from autoclave.judge.languages import Environment
from autoclave.judge.messages import failure_of
from autoclave.judge.special import SpecialJudge
from autoclave.sandbox import Cell, Limits, Sandbox

_SMALL_BYTES = 1 << 20
_SPELLING_FACTOR = 64
"""An output above the small size and that many times longer than the expected one is refused unread: text takes up to
four times the memory of its bytes, and comparing it some more."""


class StdinKind:
    """Tests of a program that is run once per test."""

    def __init__(
        self, problem: Problem, tests: StdinTests, checker: Rule | CustomChecker, environment: Environment
    ) -> None:
        self._cases = tests.cases
        self._checker = checker
        self._problem_id = problem.id
        self._environment = environment

    def num_tests(self) -> int:
        return len(self._cases)

    def input_lengths(self) -> list[int]:
        return [len(case.input) for case in self._cases]

    def start(self, sandbox: Sandbox, program: Program, limits: Limits) -> Trial:
        special = SpecialJudge.of(self._checker, sandbox, self._problem_id, limits)
        return start_in_one_cell(self._environment, sandbox, program, limits, partial(self._judge, special), special)

    def _judge(self, special: SpecialJudge | None, cell: Cell, index: int, source: str) -> Judgement:
        case = self._cases[index]
        outcome = cell.run(case.input.encode("utf-8", "surrogatepass"))
        failure = failure_of(outcome, source)
        if failure:
            return Judgement(outcome, *failure)
        if special:
            return Judgement(outcome, *special.judge("stdin", case.input, case.output, outcome.stdout))
        return Judgement(outcome, *self._compare(outcome.stdout, case.output))

    def _compare(self, printed: bytes, expected: str) -> tuple[Status, str]:
        assert isinstance(self._checker, Rule)
        is_readable = len(printed) <= _SMALL_BYTES or len(printed.strip()) <= _SPELLING_FACTOR * len(
            expected.encode("utf-8", "surrogatepass")
        )
        if is_readable and self._checker.matches_text(printed.decode("utf-8", "replace"), expected):
            return Status.ACCEPTED, ""
        return Status.WRONG_ANSWER, "the output does not match"
