"""Standard input in, standard output compared by the problem's checker."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import takewhile

from autoclave.core import CustomChecker, Outcome, Problem, Program, Status, StdinTests
from autoclave.judge.kinds.interface import Judgement, Trial, start_in_one_cell
from autoclave.judge.messages import failure_of
from autoclave.judge.profiles import Environment
from autoclave.judge.special import Rule, SpecialJudge
from autoclave.sandbox import Cell, Limits, Sandbox

_SMALL_BYTES = 1 << 20
_SPELLING_FACTOR = 64
"""An output above the small size and that many times longer than the expected one is refused unread: text takes up to
four times the memory of its bytes, and comparing it some more."""
_MOST_AHEAD, _SMALL_TEXT = 31, 1 << 14


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
        ahead: dict[int, Outcome] = {}
        most = _MOST_AHEAD

        def judge(cell: Cell, index: int, source: str) -> Judgement:
            nonlocal most
            if index not in ahead:
                ahead.update(self._run(cell, index, trial.order, most))
                most = min(2 * len(ahead) - 1, _MOST_AHEAD)  # few if few followed: each is encoded for every call
            return self._judged(special, index, ahead.pop(index), source)

        trial = start_in_one_cell(self._environment, sandbox, program, limits, judge, special)
        return trial

    def _run(self, cell: Cell, index: int, order: Sequence[int], most: int) -> Iterable[tuple[int, Outcome]]:
        """Outcomes of a test, and of at most so many that were run after it."""
        first = self._cases[index]
        if len(first.output) >= _SMALL_TEXT:
            return [(index, cell.run(first.input.encode("utf-8", "surrogatepass")))]
        following = order[bisect_right(order, index) :][:most]
        indices = [index, *takewhile(self._is_small, following)]
        cases = [self._cases[each] for each in indices]
        tests = [tuple(text.encode("utf-8", "surrogatepass") for text in (case.input, case.output)) for case in cases]
        return zip(indices, cell.run_ahead(tests), strict=False)

    def _is_small(self, index: int) -> bool:
        return max(len(self._cases[index].input), len(self._cases[index].output)) < _SMALL_TEXT

    def _judged(self, special: SpecialJudge | None, index: int, outcome: Outcome, source: str) -> Judgement:
        case = self._cases[index]
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
