"""Values that a field of a set holds as text: JSON in most rows, a Python literal in older exports."""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

PYTHON_LITERAL_LIMIT = 4 << 20
"""Longest Python literal that is parsed, in characters; its syntax tree takes about a hundred times as much memory."""


class HugeInteger(str):
    """The digits of an integer that Python would not read: fit for standard input, not for a call."""

    __slots__ = ()


def value_of_text(text: str) -> Any:
    """The value in `text`: as JSON where it is JSON, else as a Python literal. Integers too long for Python become
    `HugeInteger`.

    Raises:
        ValueError: neither of the two, nested too deeply, or a literal that is too long.
    """
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        pass  # Python writes True, None and single quotes, which are no JSON
    if len(text) > PYTHON_LITERAL_LIMIT:
        raise ValueError(f"not JSON, and too long for a Python literal ({len(text)} characters)")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError("must be JSON or a Python literal") from None


def _integer(digits: str) -> int | HugeInteger:
    return int(digits) if len(digits) <= sys.get_int_max_str_digits() else HugeInteger(digits)
