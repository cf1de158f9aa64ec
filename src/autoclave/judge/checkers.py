"""Checkers of problems: a rule that compares in this process, or code of the problem's own.

Names are `lcb`, `exact`, `tokens`, `unordered`, `float`, `float(RTOL, ATOL)`; objects are those of
`autoclave.core.Problem`. The rules themselves are in `comparison.py` and `values.py`; code of the problem's own runs
in a cell (`special.py`).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autoclave.core import CustomChecker, FloatChecker, InputError, Problem
from autoclave.judge.comparison import CHECKERS, matches_with_tolerance
from autoclave.judge.values import ValueRule, matches_value, matches_value_in_any_order, matches_value_with_tolerance

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
