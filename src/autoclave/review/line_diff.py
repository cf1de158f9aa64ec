"""Differences of two texts as numbered lines, within limits: texts are those of agents, and may be made to be slow.

Pure.
"""

from collections.abc import Iterator
from typing import Any

from autoclave.core.line_diff import Work, hunks_of, lines_of
from autoclave.review.answers import shortened

MOST_BYTES = 1 << 19
MOST_LINES = 4000
"""Of a side, that are compared line by line."""
_LONGEST_LINE = 2000
Line = tuple[str, int | None, int | None, str]
"""`-`, `+`, a blank for both sides or `@` for a gap; its number before and after; its text."""


def text_of(content: bytes) -> str | None:
    """Return content as text; None if it is not text, or too large to be compared."""
    if b"\0" in content or len(content) > MOST_BYTES:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.count("\n") <= MOST_LINES else None


def compared(old: str, new: str, work: Work) -> dict[str, Any]:
    """Return the lines that differ, with three around them, and how many were added and removed."""
    lines = list(_lines(lines_of(old), lines_of(new), work))
    counts = {sign: sum(line[0] == sign for line in lines) for sign in "+-"}
    return {"lines": lines, "added": counts["+"], "removed": counts["-"]}


def _lines(old: list[str], new: list[str], work: Work) -> Iterator[Line]:
    for number, hunk in enumerate(hunks_of(old, new, work)):
        if number:
            yield "@", None, None, ""
        for tag, first, last, new_first, new_last in hunk:
            if tag == "equal":
                for offset, text in enumerate(old[first:last]):
                    yield " ", first + offset + 1, new_first + offset + 1, shortened(text, _LONGEST_LINE)
                continue
            for place in range(first, last):
                yield "-", place + 1, None, shortened(old[place], _LONGEST_LINE)
            for place in range(new_first, new_last):
                yield "+", None, place + 1, shortened(new[place], _LONGEST_LINE)
