"""Patterns of resources.

`*` stands for any characters within one name, `?` for one of them, and `**`, as a whole name, for any number of names,
also none. All else stands for itself: case counts, and so does how an accented letter is composed.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

_NEVER = re.compile(r"(?!)")


@cache
def matcher(patterns: tuple[str, ...], *, is_loose: bool = False) -> re.Pattern[str]:
    """Return an expression for the patterns. `is_loose`: for resources normalised by `loose`."""
    if not patterns:
        return _NEVER
    given = [loose(pattern) for pattern in patterns] if is_loose else patterns
    return re.compile("|".join(f"(?:{_expression(pattern)})" for pattern in given), re.DOTALL)


def loose(resource: str) -> str:
    """Normalise what some file systems do not distinguish: case, and the composition of letters."""
    if resource.isascii():
        return resource.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", resource).casefold())


def literal_prefix(pattern: str) -> str:
    plain = re.split(r"[*?]", pattern, maxsplit=1)[0]
    if plain == pattern or not pattern[len(plain) :].startswith("**"):
        return plain
    return plain.removesuffix("/")  # `a/**` matches `a`


def names_in(patterns: Sequence[str]) -> frozenset[str]:
    return frozenset(name for pattern in patterns for name in pattern.split("/") if not set(name) & {"*", "?"})


def _expression(pattern: str) -> str:
    words: list[str] = []
    names = pattern.split("/")
    for place, name in enumerate(names):
        is_last = place == len(names) - 1
        if name == "**":
            if is_last:  # with the folder itself
                words.append("(?:/.*)?" if words else ".*")
            else:
                words.append("(?:/[^/]+)*" if words else "(?:[^/]+/)*")
            continue
        if words and not (place == 1 and names[0] == "**"):
            words.append("/")
        words.append("".join("[^/]*" if c == "*" else "[^/]" if c == "?" else re.escape(c) for c in name))
    return "".join(words)
