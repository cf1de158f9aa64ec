"""Selection of the values that a trace holds. Pure; of primitive type means exactly that type, no subclass.

Both sides use this module: the judge imports it, a cell gets its text as part of a runner, so it uses the standard
library only. What is too large is left out and counted, never cut: a value in a trace is exact.
"""

from typing import Any

MAX_VARIABLES = 100
MAX_TEXT_LENGTH = 1000
"""Characters of a string."""
MAX_DIGITS = 1000
"""Decimal digits of an integer."""
MAX_LIST_PARTS = 100
"""Values in a list, and in the lists in it."""
MAX_LIST_BYTES = 10_000
"""Plain data of such a list."""
MAX_RESULT_BYTES = 1 << 16
"""Plain data of a returned value."""

_INT_BOUND = 10**MAX_DIGITS


def primitives(values: "dict[str, Any]") -> "dict[str, Any]":
    """Those of `values` that are None, a bool, an int, a float or a str, and of no subclass."""
    return {
        name: value
        for name, value in values.items()
        # One test after the other, on identity alone: a set of types would run what a metaclass defines.
        if type(value) is int or type(value) is str or value is None or type(value) is bool or type(value) is float
    }


def with_lists(values: "dict[str, Any]") -> "dict[str, Any]":
    """The primitives, and copies of the short lists of finite primitive values and of such lists."""
    found = primitives(values)
    for name, value in values.items():
        if type(value) is list:
            try:
                found[name] = _copied(value, [MAX_LIST_PARTS])
            except ValueError:
                continue
    return found


def _copied(value: Any, room: "list[int]") -> Any:
    """A copy of `value`; raises ValueError when it holds anything else, or more than there is room for."""
    room[0] -= 1
    if room[0] < -1:
        raise ValueError
    if type(value) is list:
        return [_copied(part, room) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if not primitives({"": value}) or not is_small(value) or (type(value) is float and value - value != 0):
        raise ValueError
    return value


def is_small(value: Any) -> bool:
    """Return whether a primitive value is small enough to be reported."""
    if type(value) is int:
        return -_INT_BOUND < value < _INT_BOUND
    return type(value) is not str or len(value) <= MAX_TEXT_LENGTH
