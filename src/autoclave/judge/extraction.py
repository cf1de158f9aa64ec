"""Find the program in a model's response. Pure text functions; None means no program (`bad_format`)."""

import re
from collections.abc import Callable, Iterator, Mapping

_FENCE = re.compile(r"^[ \t]*(`{3,})([^`\n]*)$")
_PYTHON_TAGS = frozenset({"python", "python3", "py", "py3"})


def last_fence(response: str) -> str | None:
    """The last complete fenced block that is tagged as Python, else the last complete one.

    One that is indented, as in a list, is taken without so much indentation as its fence has.
    """
    place = _last_fence(response)
    if place is None:
        return None
    fence = response[: place[0]].split("\n")[-2]
    indentation = fence[: len(fence) - len(fence.lstrip(" \t"))]
    text = response[place[0] : place[1]]
    if not indentation:
        return text
    return "\n".join(line[_common(indentation, line) :] for line in text.split("\n"))


def lcb(response: str) -> str | None:
    """The text between the last two lines that contain three backticks, as LiveCodeBench takes it."""
    place = _lcb(response)
    return None if place is None else response[slice(*place)]


EXTRACTION_RULES: Mapping[str, Callable[[str], str | None]] = {
    "last_fence": last_fence,
    "lcb": lcb,
    "whole": lambda response: response,
}
"""Rules by the name that settings use."""


def program_place(response: str, rule: str) -> tuple[int, int] | None:
    """Return start and end of the program that the rule of that name finds, in characters of `response`."""
    return _PLACES[rule](response)


def _last_fence(response: str) -> tuple[int, int] | None:
    blocks = _complete_blocks(response)
    tagged = [place for tag, place in blocks if tag in _PYTHON_TAGS]
    return tagged[-1] if tagged else blocks[-1][1] if blocks else None


def _lcb(response: str) -> tuple[int, int] | None:
    marks = [(start, line) for start, line in _lines(response) if "```" in line]
    if len(marks) < 2:
        return None
    start = marks[-2][0] + len(marks[-2][1]) + 1
    return start, max(start, marks[-1][0] - 1)


_PLACES: Mapping[str, Callable[[str], tuple[int, int] | None]] = {
    "last_fence": _last_fence,
    "lcb": _lcb,
    "whole": lambda response: (0, len(response)),
}


def _common(indentation: str, line: str) -> int:
    """Return how much of the indentation a line begins with."""
    return next((place for place, char in enumerate(indentation) if line[place : place + 1] != char), len(indentation))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with where it begins. Not splitlines: a program may hold other line separators in its texts."""
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _complete_blocks(response: str) -> list[tuple[str, tuple[int, int]]]:
    """Tag and place of each fenced block that is closed, in order."""
    blocks: list[tuple[str, tuple[int, int]]] = []
    opening: tuple[str, str, int] | None = None
    for start, line in _lines(response):
        mark = _FENCE.match(line.rstrip("\r"))
        if opening is None:
            if mark:
                opening = mark[1], mark[2].strip().split(" ")[0].lower(), start + len(line) + 1
        elif mark and not mark[2].strip() and len(mark[1]) >= len(opening[0]):
            first = opening[2]
            blocks.append((opening[1], (first, max(first, start - 1))))  # an empty block has no line to end
            opening = None
    return blocks
