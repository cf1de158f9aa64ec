"""Tests of EvalPlus that are lists of arguments: expected is what the reference returns, computed in the check.

The rules of comparison are facts of EvalPlus (evalplus/eval/__init__.py): equal, or close where the reference returns
floats; for some tasks of MBPP+ equal as sets, or both something or nothing; for one of HumanEval the result must be a
root of the polynomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SET_EQUAL = frozenset(
    (
        *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
        *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
    )
)
_NOT_NONE = frozenset({"check_str", "text_match_three", "text_starta_endb"})
_ROOT = frozenset({"find_zero"})

_CHECK = """
def _is_close(found, expected, margin):
    if isinstance(expected, float) or (isinstance(found, float) and isinstance(expected, int)):
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            return False
        return found == expected or (found != found and expected != expected) or (
            abs(found - expected) <= margin + 1e-07 * abs(expected)
        )
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(_is_close(a, b, margin) for a, b in zip(found, expected))
    return found == expected


def _holds_floats(value):
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_holds_floats(part) for part in value)
    return isinstance(value, float)


def _is_equal(found, expected, margin):
    if found == expected:
        return True
    return bool(margin or _holds_floats(expected)) and _is_close(found, expected, margin or 1e-06)


def _is_something(value):
    return value if isinstance(value, bool) else value is not None


def check(candidate):
    from copy import deepcopy

    for arguments in _ARGUMENTS:
        expected = {reference}(*deepcopy(arguments))
        found = candidate(*deepcopy(arguments))
        assert {rule}
"""
_RULES = {
    "equal": "_is_equal(found, expected, {margin})",
    "sets": "set(found) == set(expected)",
    "not_none": "_is_something(found) == _is_something(expected)",
    "root": "abs(sum(factor * found**power for power, factor in enumerate(arguments[0]))) <= {margin}",
}


def comparison_source(solution: str, entry_point: str, arguments: Sequence[Any], margin: float) -> str:
    """Test code that defines `check(candidate)`: both functions are called with each list of arguments.

    `solution` is the reference, `margin` the absolute tolerance of the task.
    """
    kinds = ((_SET_EQUAL, "sets"), (_NOT_NONE, "not_none"), (_ROOT, "root"))
    kind = next((name for names, name in kinds if entry_point in names), "equal")
    rule = _RULES[kind].format(margin=margin)
    inputs = ",\n    ".join(map(repr, arguments))
    values = f"inf, nan = float('inf'), float('nan')\n_ARGUMENTS = [\n    {inputs},\n]\n"
    return f"{solution}\n\n_reference = {entry_point}\n{values}{_CHECK.format(reference='_reference', rule=rule)}"
