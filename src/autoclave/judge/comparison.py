"""Decide whether what a program printed matches what was expected.

Pure text functions: no process, no file, no clock. What was printed is hostile: nothing here takes more than linear
time in it, and no list is longer than what was expected. `CHECKERS` names the rules without parameters: `lcb`
compares as LiveCodeBench does, `exact` by characters, `tokens` by words, `unordered` by lines in any order. Not here:
values returned by calls (`values.py`), and how a problem names its rule (`special.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import zip_longest

_LONGEST_NUMBER = 4096
"""A longer word is not a number to the rule of tolerances; it is compared as text."""
_WORD = re.compile(r"\S+")


def matches_like_livecodebench(printed: str, expected: str) -> bool:
    """Equal line by line after stripping; lines that differ may still hold the same decimal numbers, exactly.

    1.0, 1 and 1e0 are the same number; there is no tolerance, and NaN equals nothing. Case and inner blank lines count.

    Source: the evaluation rules of LiveCodeBench, arXiv:2403.07974.
    """
    if printed == expected:
        return True
    lines = _paired_lines(printed, expected)
    return lines is not None and all(a == b or _same_numbers(a, b) for a, b in zip(*lines, strict=True))


def matches_exactly(printed: str, expected: str) -> bool:
    return printed == expected


def matches_by_tokens(printed: str, expected: str) -> bool:
    """The same words in the same order, whatever blanks stand between them."""
    return all(a == b for a, b in zip_longest(_words(printed), _words(expected)))


def matches_in_any_order(printed: str, expected: str) -> bool:
    """The same stripped lines, each as often, in any order. Blanks around the whole text do not count."""
    lines = _paired_lines(printed, expected)
    return lines is not None and Counter(lines[0]) == Counter(lines[1])


def matches_with_tolerance(printed: str, expected: str, *, rtol: float, atol: float) -> bool:
    """The same words in the same order, where words that are numbers may differ (`is_close`).

    A number is what Python's `float` reads, in ASCII and without `_`. NaN equals nothing, itself included. A number
    that is too large for a float, or longer than 4096 characters, counts as a word.
    """
    return all(
        a is not None and b is not None and _same_words(a, b, rtol, atol)
        for a, b in zip_longest(_words(printed), _words(expected))
    )


def is_close(value: float, target: float, *, rtol: float, atol: float) -> bool:
    """Return whether `value` is `target`, or both are finite and

        |value - target| <= max(atol, rtol * |target|)

    Integers may be of any size.
    """
    if value == target:
        return True
    try:
        return math.isfinite(target) and abs(value - target) <= max(atol, rtol * abs(target))
    except OverflowError:  # an integer beyond the floats
        return False


CHECKERS: Mapping[str, Callable[[str, str], bool]] = {
    "lcb": matches_like_livecodebench,
    "exact": matches_exactly,
    "tokens": matches_by_tokens,
    "unordered": matches_in_any_order,
}
"""Rules by the name that problems use."""


def _words(text: str) -> Iterator[str]:
    """Yield the parts of `text.split()`, one at a time."""
    return (match[0] for match in _WORD.finditer(text))


def _paired_lines(printed: str, expected: str) -> tuple[list[str], list[str]] | None:
    """The stripped lines of both, or nothing when there are not as many of them: then none are made."""
    printed, expected = printed.strip(), expected.strip()
    if printed.count("\n") != expected.count("\n"):
        return None
    return [line.strip() for line in printed.split("\n")], [line.strip() for line in expected.split("\n")]


def _same_numbers(printed: str, expected: str) -> bool:
    try:
        return all(
            a is not None and b is not None and Decimal(a) == Decimal(b)
            for a, b in zip_longest(_words(printed), _words(expected))
        )
    except InvalidOperation:  # a word that is not a number, or a signalling NaN
        return False


def _same_words(printed: str, expected: str, rtol: float, atol: float) -> bool:
    target = _number(expected)
    if target is None:
        return printed == expected
    value = _number(printed)
    return value is not None and is_close(value, target, rtol=rtol, atol=atol)


def _number(word: str) -> float | None:
    """NaN is a number that equals nothing."""
    if len(word) > _LONGEST_NUMBER or not word.isascii() or "_" in word:
        return None
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) or word.lstrip("+-")[:1] in "iInN" else None
