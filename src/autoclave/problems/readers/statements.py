"""Parse the parts that sets put around and beside a statement: prompts, fences, dates, difficulties, limits, sites."""

import datetime
import difflib
import re
from pathlib import Path
from urllib.parse import urlsplit

_FENCE = re.compile(r"```[ \t]*([\w+#-]*)[^\n]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_PYTHON = ("", "py", "python", "python3")
_PROMPTS = [re.compile(line) for line in Path(__file__).with_name("prompts.txt").read_text("utf-8").splitlines()]
"""Prompts of known sets, one expression per line."""
_STARTER = re.compile(
    r"\n+Please complete the following python code precisely:\s*```python\n(.*?)\n?```\s*\Z", re.DOTALL
)
_DIFFICULTIES = (
    *("introductory", "interview", "competition", "easy", "medium", "hard", "medium_hard", "very_hard", "harder"),
    *("hardest", "unknown_difficulty"),
)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli)?", re.IGNORECASE)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(k|m|g)?", re.IGNORECASE)
_MEGABYTES = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "": 1.0}
LEAST_MEMORY_MB = 256
"""Smallest memory limit: contests set limits for compiled programs, and an interpreter needs more."""


def without_prompt(text: str) -> str:
    """Return a statement without the prompts that known sets put around it."""
    for pattern in _PROMPTS:
        text = pattern.sub("", text)
    return text.strip()


def without_starter_code(text: str) -> tuple[str, str]:
    """Return a statement and the starter code at its end, empty without one."""
    found = _STARTER.search(text)
    return (text[: found.start()].strip(), found[1]) if found else (text, "")


def python_of(text: str) -> str:
    """Return the Python program in text with or without a fence; empty for a fence of another language."""
    fences = _FENCE.findall(text)
    if not fences:
        return "" if "```" in text else text.strip("\n")
    programs = [code for language, code in fences if language.casefold() in _PYTHON]
    return programs[-1] if programs else ""


def day(text: str) -> datetime.date | None:
    """Return the day in `2023-08-21T00:00:00` or `2023-08-21`; None for other text."""
    try:
        return datetime.date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None


def difficulty(text: str) -> str:
    """Return a difficulty in the words of its set, with spelling mistakes (`Meidum`) fixed."""
    word = text.strip()
    known = difflib.get_close_matches(word.casefold(), _DIFFICULTIES, 1, cutoff=0.8)
    if not known or known[0] == word.casefold():
        return word
    return known[0].upper() if word.isupper() else known[0].capitalize() if word[:1].isupper() else known[0]


def seconds(text: str) -> float | None:
    """Parse a time limit such as `2.0 seconds`, `2` or `500 ms`; None for other text."""
    found = _SECONDS.search(text)
    number = float(found[1]) / (1000 if found[2] else 1) if found else 0.0
    return number or None


def megabytes(text: str) -> int | None:
    """Parse a memory limit such as `256.0 megabytes` or `64`, at least `LEAST_MEMORY_MB`; None for other text."""
    found = _MEMORY.search(text)
    number = float(found[1]) * _MEGABYTES[(found[2] or "").casefold()] if found else 0.0
    return max(LEAST_MEMORY_MB, round(number)) if number else None


def site(url: str) -> str:
    """Return the name of the site of a page, such as `codeforces`; empty for other text."""
    try:
        host = urlsplit(url.strip()).hostname or ""
    except ValueError:
        return ""
    parts = host.removeprefix("www.").split(".")
    return parts[-2] if len(parts) > 1 else ""
