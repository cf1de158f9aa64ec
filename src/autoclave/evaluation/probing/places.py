"""Positions of the variables of a program in its text, and in the tokens it was written with. Pure.

The text is untrusted output of a model, so it is never parsed: comments, strings and words are distinguished by their
first characters, in time linear in the text.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

Place = tuple[int, int]
"""Start and end, in characters."""

_PIECE = re.compile(r"""\#[^\r\n]*|[0-9A-Za-z_\x80-\U0010ffff]+|\"\"\"|'''|["']""")
_REST_OF_STRING = {
    '"': re.compile(r'(?:[^"\\\r\n]|\\.)*', re.DOTALL),
    "'": re.compile(r"(?:[^'\\\r\n]|\\.)*", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*', re.DOTALL),
    "'''": re.compile(r"(?:[^'\\]|\\.|'(?!''))*", re.DOTALL),
}
_FORMATTED = frozenset({"f", "fr", "rf", "t", "tr", "rt"})
_PREFIXES = frozenset({"r", "u", "b", "br", "rb"}) | _FORMATTED


def last_occurrences(program: str) -> dict[str, Place]:
    """Return the last place of each word of `program` that can be a variable: name -> place.

    Whole words count, normalised (NFKC) as in Python. Comments, strings (except fields of f-strings) and attributes do
    not count. A keyword argument, or a local of another function, counts if it has the same name.
    """
    return {unicodedata.normalize("NFKC", program[start:stop]): (start, stop) for start, stop in _words(program)}


def shared_names(names: Sequence[str]) -> frozenset[str]:
    """Return the variables of a trace with ambiguous places: `n`, and `f.n` of the main function `f`."""
    words = [name.rpartition(".")[2] for name in names]
    return frozenset(name for name, word in zip(names, words, strict=True) if words.count(word) > 1)


def token_at(text: str, stop: int, tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int | None:
    """Return the index of the token that completes the first `stop` characters of `text`; None if none does.

    Of a name of several tokens that is the last one. Decodes prefixes of the sampled tokens, since encoding the text
    again could give other tokens.
    """
    wanted = text[:stop]

    def is_complete(count: int) -> bool:
        return decode(tokens[:count])[:stop] == wanted

    if not stop or not is_complete(len(tokens)):
        return None
    return bisect_left(range(1, len(tokens) + 1), True, key=is_complete)


def _words(text: str, start: int = 0, stop: int | None = None) -> Iterator[Place]:
    """Yield the places of words between `start` and `stop`, in order.

    Recurses into f-strings, at most four deep, since a string cannot contain its own kind of quotes.
    """
    stop = len(text) if stop is None else stop
    prefix = ""
    while found := _PIECE.search(text, start, stop):
        piece, start = found[0], found.end()
        if piece in _REST_OF_STRING:
            rest = _REST_OF_STRING[piece].match(text, start, stop)
            end = rest.end() if rest else start
            if prefix in _FORMATTED:
                for field in _fields(text, start, end):
                    yield from _words(text, *field)
            start, prefix = end + (len(piece) if text.startswith(piece, end) else 0), ""
        elif piece[0] != "#":
            is_prefix = text[start : start + 1] in ("'", '"') and start < stop and piece.lower() in _PREFIXES
            prefix = piece.lower() if is_prefix else ""
            if not is_prefix and not piece[0].isdigit() and text[found.start() - 1 : found.start()] != ".":
                yield found.span()


def _fields(text: str, start: int, stop: int) -> Iterator[Place]:
    """Yield the places of expressions in the content of an f-string between `start` and `stop`."""
    while (start := text.find("{", start, stop)) >= 0:
        start += 1
        if text.startswith("{", start, stop):
            start += 1
            continue
        end = _end_of_expression(text, start, stop)
        yield start, end
        start = end


def _end_of_expression(text: str, start: int, stop: int) -> int:
    depth = 0
    for place in range(start, stop):
        sign = text[place]
        if sign in "([{":
            depth += 1
        elif depth and sign in ")]}":
            depth -= 1
        elif not depth and (sign in "}:" or (sign == "!" and not text.startswith("=", place + 1))):
            return place
    return stop
