"""Decide whether the value that a call returned matches the expected one. Both are plain data; pure functions."""

from __future__ import annotations

from typing import Any


def matches_value(result: Any, expected: Any) -> bool:
    """Python's `==` after turning a tuple at the top, and only there, into a list, as LiveCodeBench does.

    So True equals 1 and 1.0 equals 1; a nested tuple is not a list; there is no tolerance.
    """
    if isinstance(result, tuple):
        result = list(result)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    try:
        return bool(result == expected)
    except RecursionError:  # nested deeper than the interpreter compares
        return False
