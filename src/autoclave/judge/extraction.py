"""Find the program in a model's response. Pure text functions; None means that there is none (`bad_format`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_FENCE = re.compile(r"^[ \t]*(`{3,})([^`\n]*)$")
_PYTHON_TAGS = frozenset({"python", "python3", "py", "py3"})


def last_fence(response: str) -> str | None:
    """The last complete fenced block that is tagged as Python, else the last complete one."""
    blocks = list(_complete_blocks(response))
    tagged = [text for tag, text in blocks if tag in _PYTHON_TAGS]
    return tagged[-1] if tagged else blocks[-1][1] if blocks else None


def lcb(response: str) -> str | None:
    """The text between the last two lines that contain three backticks, as LiveCodeBench takes it."""
    lines = response.split("\n")
    marks = [index for index, line in enumerate(lines) if "```" in line]
    return None if len(marks) < 2 else "\n".join(lines[marks[-2] + 1 : marks[-1]])


def whole(response: str) -> str | None:
    """All of it."""
    return response


EXTRACTION_RULES: Mapping[str, Callable[[str], str | None]] = {"last_fence": last_fence, "lcb": lcb, "whole": whole}
"""Rules by the name that settings use."""


def _complete_blocks(response: str) -> list[tuple[str, str]]:
    """(tag, text) of each fenced block that is closed, in order."""
    blocks: list[tuple[str, str]] = []
    opening: tuple[str, str] | None = None
    lines: list[str] = []
    for line in response.split("\n"):  # not splitlines: a program may hold other line separators in its texts
        mark = _FENCE.match(line.rstrip("\r"))
        if opening is None:
            if mark:
                opening, lines = (mark[1], mark[2].strip().split(" ")[0].lower()), []
        elif mark and not mark[2].strip() and len(mark[1]) >= len(opening[0]):
            blocks.append((opening[1], "\n".join(lines)))
            opening = None
        else:
            lines.append(line)
    return blocks
