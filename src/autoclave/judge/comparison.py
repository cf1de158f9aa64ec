"""Decide whether what a program printed matches what was expected.

Pure text functions: no process, no file, no clock. `CHECKERS` names the rules: `lcb` compares as LiveCodeBench does,
`exact` byte for byte, `tokens` word by word. Not here: values returned by calls (`values.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation


def matches_like_livecodebench(printed: str, expected: str) -> bool:
    """Equal line by line after stripping; lines that differ may still hold the same decimal numbers, exactly.

    1.0, 1 and 1e0 are the same number; there is no tolerance, and NaN equals nothing. Case and inner blank lines count.

    Source: the evaluation rules of LiveCodeBench, arXiv:2403.07974.
    """
    printed_lines = [line.strip() for line in printed.strip().split("\n")]
    expected_lines = [line.strip() for line in expected.strip().split("\n")]
    if len(printed_lines) != len(expected_lines):
        return False
    return all(a == b or _same_numbers(a, b) for a, b in zip(printed_lines, expected_lines, strict=True))


def matches_exactly(printed: str, expected: str) -> bool:
    """The same text."""
    return printed == expected


def matches_by_tokens(printed: str, expected: str) -> bool:
    """The same words in the same order, whatever blanks stand between them."""
    return printed.split() == expected.split()


CHECKERS: Mapping[str, Callable[[str, str], bool]] = {
    "lcb": matches_like_livecodebench,
    "exact": matches_exactly,
    "tokens": matches_by_tokens,
}
"""Rules by the name that problems use."""


def _same_numbers(printed: str, expected: str) -> bool:
    printed_tokens, expected_tokens = printed.split(), expected.split()
    if len(printed_tokens) != len(expected_tokens):
        return False  # also spares parsing a flood of numbers
    try:
        return all(Decimal(a) == Decimal(b) for a, b in zip(printed_tokens, expected_tokens, strict=True))
    except InvalidOperation:  # a token that is no number, or a signalling NaN
        return False
