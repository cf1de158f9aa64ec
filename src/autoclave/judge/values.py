"""Decide whether the value that a call returned matches the expected one. Both are plain data; pure functions.

The result is hostile, but it was decoded: instances of exactly the builtin types, nested no deeper than the codec
allows. The expected value comes from JSON. There are two rules for values, `lenient` and `strict`; a profile names
one. Time is linear in both values.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from autoclave.judge.comparison import is_close

ValueRule = Literal["lenient", "strict"]
"""`lenient`: Python's `==`, a tuple at the top counts as a list. `strict`: values and their types."""


def matches_value(result: Any, expected: Any, rule: ValueRule) -> bool:
    """Equal by `rule`.

    `lenient` is what LiveCodeBench does: True equals 1 and 1.0 equals 1, a tuple at the top, and only there, is a
    list, NaN equals nothing. `strict` wants the type of each part too: True, 1 and 1.0 differ, an array of JSON is a
    list and not a tuple, NaN equals NaN. There is no tolerance.
    """
    if rule == "strict":
        return _is_same(result, expected, _is_same_typed)
    try:
        return bool(_as_list(result) == expected)
    except RecursionError:  # nested deeper than the interpreter compares
        return False


def matches_value_with_tolerance(result: Any, expected: Any, rule: ValueRule, *, rtol: float, atol: float) -> bool:
    """Equal by `rule`, but integers and floats may differ (`is_close`) and stand for each other. NaN equals nothing."""
    same = _EQUALITIES[rule]

    def is_same_or_close(left: Any, right: Any) -> bool:
        if type(left) in (int, float) and type(right) in (int, float):
            return is_close(left, right, rtol=rtol, atol=atol)
        return same(left, right)

    return _is_same(_as_list(result) if rule == "lenient" else result, expected, is_same_or_close)


def matches_value_in_any_order(result: Any, expected: Any, rule: ValueRule) -> bool:
    """Equal by `rule`, but the elements of a list at the top may stand in any order. Inner lists keep theirs."""
    if rule == "lenient":
        result = _as_list(result)
    if type(result) is not list or type(expected) is not list:
        return matches_value(result, expected, rule)
    if len(result) != len(expected):
        return False
    # Only what is expected makes a table; keys made to collide would make a table of the result slow.
    missing = Counter(_key(part, rule) for part in expected)
    for part in result:
        key = _key(part, rule)
        if not missing[key]:
            return False
        missing[key] -= 1
    return True


def is_json(value: Any) -> bool:
    """Return whether a line of JSON can hold `value`, which has no cycle. Python reads NaN and infinities too."""
    pending = [value]
    while pending:
        part = pending.pop()
        if type(part) is list:
            pending.extend(part)
        elif type(part) is dict:
            if not all(type(key) is str for key in part):
                return False
            pending.extend(part.values())
        elif type(part) not in (type(None), bool, int, float, str):
            return False
    return True


def _as_list(value: Any) -> Any:
    return list(value) if type(value) is tuple else value


def _is_same(result: Any, expected: Any, is_same_leaf: Callable[[Any, Any], bool]) -> bool:
    """Both have the same shape of lists, tuples and dicts, and the leaves pass."""
    pending = [(result, expected)]
    while pending:
        left, right = pending.pop()
        kind = type(left)
        if kind is not type(right) or kind not in (list, tuple, dict):
            if not is_same_leaf(left, right):
                return False
        elif len(left) != len(right):
            return False
        elif kind is not dict:
            pending.extend(zip(left, right, strict=True))
        elif left.keys() != right.keys():
            return False
        else:
            pending.extend((left[key], part) for key, part in right.items())
    return True


def _is_same_typed(left: Any, right: Any) -> bool:
    return type(left) is type(right) and (left == right or (left != left and right != right))


_EQUALITIES: dict[ValueRule, Callable[[Any, Any], bool]] = {"lenient": operator.eq, "strict": _is_same_typed}


def _key(value: Any, rule: ValueRule) -> Any:
    """Something hashable that is equal for equal values. Nesting was capped when the value was decoded."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, tuple(_key(part, rule) for part in value)
    if kind is dict and all(type(key) is str for key in value):
        return kind, frozenset((key, _key(part, rule)) for key, part in value.items())
    if kind in (dict, set, frozenset, bytearray):
        return object()  # no value of JSON equals it
    if rule == "lenient":
        return value
    return kind, None if value != value else value
