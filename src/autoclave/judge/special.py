"""Checkers of problems: a rule that compares in this process, or code of the problem's own in a cell of its own.

Names of rules are `lcb`, `exact`, `tokens`, `unordered`, `float`, `float(RTOL, ATOL)`; the rules themselves are in
`comparison.py` and `values.py`. Of a custom checker, the hostile text goes from the program's cell into its cell
unparsed; one word comes back. One that fails before it receives a result is the problem's fault, and there is no
verdict; one that fails on a result does not accept it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autoclave.core import CustomChecker, Ended, FloatChecker, InputError, Outcome, Problem, SandboxFault, Status
from autoclave.judge.comparison import CHECKERS, matches_with_tolerance
from autoclave.judge.messages import failure_of
from autoclave.judge.plain_data import encode
from autoclave.judge.profiles import CUSTOM_CHECKER, PROFILES
from autoclave.judge.values import ValueRule, matches_value, matches_value_in_any_order, matches_value_with_tolerance
from autoclave.sandbox import Cell, Limits, Sandbox, Session

DEFAULT_TOLERANCE = 1e-6
"""Of `float` without numbers, relative and absolute: the usual tolerance of contests."""

_FLOAT = re.compile(
    r"float\(\s*(?P<first>rtol\s*=|atol\s*=|)\s*(?P<one>[0-9.eE+-]{1,40})\s*,"
    r"\s*(?P<second>rtol\s*=|atol\s*=|)\s*(?P<other>[0-9.eE+-]{1,40})\s*\)"
)
_VALUE_CHECKERS: dict[str, Callable[[Any, Any, ValueRule], bool]] = {
    "lcb": matches_value,
    "unordered": matches_value_in_any_order,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Compares printed text, and, if it is meant for them, values that calls return."""

    matches_text: Callable[[str, str], bool]
    matches_value: Callable[[Any, Any, ValueRule], bool] | None


def checker_of(problem: Problem) -> Rule | CustomChecker:
    """Return how results of `problem` are compared.

    Raises InputError: no such checker, or tolerances out of range; the message names the problem and the field.
    """
    checker = problem.checker
    if isinstance(checker, CustomChecker):
        return checker
    if isinstance(checker, FloatChecker):
        return _with_tolerance(problem, checker.rtol, checker.atol)
    if checker == "float":
        return _with_tolerance(problem, DEFAULT_TOLERANCE, DEFAULT_TOLERANCE)
    if checker.startswith("float("):
        return _with_tolerance(problem, *_tolerances_in(problem, checker))
    if checker not in CHECKERS:
        known = ", ".join(CHECKERS)
        raise _refusal(problem, "checker", checker, f"must be one of {known}, float, float(RTOL, ATOL), or an object")
    return Rule(CHECKERS[checker], _VALUE_CHECKERS.get(checker))


def _tolerances_in(problem: Problem, text: str) -> tuple[float, float]:
    match = _FLOAT.fullmatch(text)
    names = [match["first"].rstrip("= \t"), match["second"].rstrip("= \t")] if match else []
    if match and names in (["", ""], ["rtol", "atol"], ["atol", "rtol"], ["", "atol"]):
        try:
            numbers = float(match["one"]), float(match["other"])
        except ValueError:
            pass
        else:
            return numbers[::-1] if names[0] == "atol" else numbers  # pyright: ignore[reportReturnType]
    raise _refusal(problem, "checker", text, "must be float, float(RTOL, ATOL) or float(rtol=RTOL, atol=ATOL)")


def _with_tolerance(problem: Problem, rtol: float, atol: float) -> Rule:
    if not 0 <= rtol < 1:
        raise _refusal(problem, "checker.rtol", rtol, "must be at least 0 and less than 1")
    if not 0 <= atol < math.inf:
        raise _refusal(problem, "checker.atol", atol, "must be at least 0 and finite")
    return Rule(
        partial(matches_with_tolerance, rtol=rtol, atol=atol),
        partial(matches_value_with_tolerance, rtol=rtol, atol=atol),
    )


def _refusal(problem: Problem, field: str, given: object, rule: str) -> InputError:
    return InputError(f"problem {problem.id!r}: {field} = {given!r}: {rule}")


_LEAST_MEMORY_MB = 256
"""A checker holds input, output and expected text, however small the problem's memory limit."""
_WALL_FACTOR = 10
"""A checker is stopped by its CPU time; the wall limit must not end it on a busy machine."""


def roomy(limits: Limits, least_memory_mb: int = _LEAST_MEMORY_MB) -> Limits:
    """Return the limits of a checker's cell: the CPU time of the program's, with ample memory and wall time."""
    return replace(limits, memory_mb=max(limits.memory_mb, least_memory_mb), wall_s=_WALL_FACTOR * limits.cpu_s + 1)


_READY = b"ready"
_REFUSALS = {b"false": "the checker does not accept the result"}


class SpecialJudge:
    """One checker. Its cell is opened for the first result and serves one trial; each result has its own process."""

    def __init__(self, sandbox: Sandbox, checker: CustomChecker, problem_id: str, limits: Limits) -> None:
        self._sandbox = sandbox
        self._source = checker.source
        self._problem_id = problem_id
        self._limits = roomy(limits)
        self._cell: Cell | None = None

    @staticmethod
    def of(checker: Rule | CustomChecker, sandbox: Sandbox, problem_id: str, limits: Limits) -> "SpecialJudge | None":
        """Return the judge of a custom checker; None for a built-in rule."""
        return SpecialJudge(sandbox, checker, problem_id, limits) if isinstance(checker, CustomChecker) else None

    def judge(self, kind: str, given: Any, expected: Any, answer: bytes) -> tuple[Status, str]:
        """Result of `check` on `answer`: text as it was printed (`stdin`), or an encoded result (`call`).

        Raises InputError: the checker fails without a result; the message names the problem. SandboxFault: its cell
        failed, or used up its wall time.
        """
        session = self._open_cell().session()
        try:
            is_ready = session.receive() == _READY
            word = _request(session, encode({"kind": kind, "input": given, "expected": expected}), answer, is_ready)
        finally:
            outcome = session.close()
        refuse_interference(outcome, "a checker")
        if not is_ready:
            raise self._refusal(f"fails before it has seen a result: {self._failure_of(outcome)}")
        if outcome.ended is not Ended.EXITED or outcome.exit_code != 0 or word is None:
            return Status.WRONG_ANSWER, f"the checker fails on the result: {self._failure_of(outcome)}"
        if word == b"true":
            return Status.ACCEPTED, ""
        return Status.WRONG_ANSWER, _REFUSALS.get(word, "the checker returns neither True nor False")

    def close(self) -> None:
        if self._cell is not None:
            self._cell.close()
            self._cell = None

    def _open_cell(self) -> Cell:
        if self._cell is None:
            content = self._source.encode("utf-8", "surrogatepass")
            self._cell = self._sandbox.open(content, PROFILES["plain"], self._limits, CUSTOM_CHECKER)
        if self._cell.compile_error is not None:
            raise self._refusal(f"does not compile: {self._cell.compile_error}")
        return self._cell

    def _failure_of(self, outcome: Outcome) -> str:
        _, message = failure_of(outcome, self._source) or (None, "it ended early")
        return message

    def _refusal(self, what: str) -> InputError:
        return InputError(f"problem {self._problem_id!r}: checker.source {what}")


def _request(session: Session, question: bytes, answer: bytes, is_ready: bool) -> bytes | None:
    if not is_ready:
        return None
    session.send(question)
    session.send(answer)
    return session.receive()


def refuse_interference(outcome: Outcome, subject: str) -> None:
    """Raise for a checker that used up its wall time or was killed: that shows a fault of the machine.

    Raises SandboxFault: `subject` used up its wall time or was killed.
    """
    if outcome.ended is Ended.WALL_TIME:
        raise SandboxFault(f"{subject} used up its wall time")
    if outcome.ended is Ended.SIGNALLED and outcome.signal == 9:
        raise SandboxFault(f"{subject} was killed")
