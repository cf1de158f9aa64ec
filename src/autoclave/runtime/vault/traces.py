"""Finding and replacing values in bytes, in all encodings that programs use. Pure.

A value may stand plain, in percent-encoding (also several times), in escapes of JSON and C (also within a string of
JSON) and in entities of HTML, each character in its own way and in either case; and whole in UTF-16, in hexadecimal
digits, and in base64 wherever it begins there. Whatever the form, it is replaced by the plain other value: what is
around it may then be no valid base64 or UTF-16 any more.
"""

import base64
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from html.entities import html5

_HEAD = 48
"""Characters of a value that are searched for first: compiling a pattern for a long token takes a second."""
_LEAST_IN_BASE64 = 8
_NEIGHBOUR = rb"(?:[A-Za-z0-9+/_-](?:\r?\n|(?:\\r)?\\n)?)?"
"""The character of base64 that has bits of the value and of what is beside it."""


def found_in(content: bytes, values: Mapping[str, str]) -> list[str]:
    """Return the names of the values that occur in bytes, in any form."""
    return [name for name, value in values.items() if any(form.is_in(content) for form in _forms_of(value))]


class Replacer:
    """Replaces values in bytes, in any form, each by its other value as it is."""

    def __init__(self, others: Mapping[str, str]) -> None:
        self._others = sorted(others.items(), key=lambda each: -len(each[0]))

    def whole(self, content: bytes) -> bytes:
        for value, other in self._others:
            for form in _forms_of(value):
                if form.is_in(content):
                    content = form.whole.sub(other.encode().replace(b"\\", rb"\\"), content)
        return content


class _Form:
    """One form of a value: an expression for each unit, and for what is beside it.

    The first has a literal byte at the beginning of each alternative, which makes `re` fast.
    """

    def __init__(self, units: Sequence[bytes], before: bytes = b"", after: bytes = b"") -> None:
        self._whole = before + b"".join(units) + after
        self._head, self._is_long = re.compile(b"".join(units[:_HEAD])), len(units) > _HEAD

    def is_in(self, content: bytes) -> bool:
        """Return whether the value occurs in this form. Other tokens may share the beginning of a long one."""
        found = self._head.search(content)
        return bool(self.whole.search(content) if found and self._is_long else found)

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        return re.compile(self._whole)


@lru_cache(maxsize=64)
def _forms_of(value: str) -> tuple[_Form, ...]:
    return (
        _Form([_in_text(character) for character in value]),
        _Form([re.escape(character.encode("utf-16-le")) for character in value]),
        _Form([re.escape(character.encode("utf-16-be")) for character in value]),
        _Form([_in_digits(byte) for byte in value.encode()]),
        *_in_base64(value.encode()),
    )


def _in_digits(byte: int) -> bytes:
    low, high = b"%02x" % byte, b"%02X" % byte
    return low if low == high else b"(?:%s|%s)" % (low, high)  # two equal ways would make `re` try all combinations


@cache
def _entities() -> Mapping[str, list[bytes]]:
    found = defaultdict[str, list[bytes]](list)
    for name, character in html5.items():
        found[character] += [b"&%s" % re.escape(name.encode())] if name.endswith(";") else []
    return found


@cache
def _in_text(character: str) -> bytes:
    """Return an expression for a character, plain or escaped."""
    ways: list[bytes] = []
    for each in dict.fromkeys((character, character.swapcase() if character.isascii() else character)):
        raw, halves, code = each.encode(), each.encode("utf-16-be").hex(), ord(each)
        ways.append(re.escape(raw))
        ways.append(b"".join(b"%%(?:25){0,2}(?i:%02x)" % byte for byte in raw))
        ways.append(b"".join(rb"\\\\{0,3}(?i:u%s)" % halves[at : at + 4].encode() for at in range(0, len(halves), 4)))
        ways += [rb"\\\\{0,3}x(?i:%02x)" % code] if code < 256 else []
        ways.append(rb"&#(?:0{0,6}%d|[xX]0{0,6}(?i:%x));?" % (code, code))
        ways += _entities().get(each, [])
    if not character.isalnum():
        ways.append(rb"\\\\{0,3}%s" % re.escape(character.encode()))
    if character == " ":
        ways.append(rb"\+")
    return b"(?:%s)" % b"|".join(ways)


def _in_base64(raw: bytes) -> Iterator[_Form]:
    """Yield a form for each of the three offsets of a value: the part that is the same whatever surrounds it."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw + bytes(3))
        start, end, is_cut = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6, (offset + len(raw)) % 3
        if end - start >= _LEAST_IN_BASE64:
            units = [_of_base64(character) for character in encoded[start:end].decode()]
            yield _Form(units, _NEIGHBOUR if offset else b"", _NEIGHBOUR if is_cut else b"")


@cache
def _of_base64(character: str) -> bytes:
    """Return an expression for a character of base64 in either alphabet, after which a line may end."""
    ways: list[bytes] = []
    for each in {"+": "+-", "/": "/_"}.get(character, character):
        plain = re.escape(each.encode())
        ways.append(plain)
        if not each.isalnum():
            ways += [
                b"%%(?:25){0,2}(?i:%02x)" % ord(each),
                rb"\\\\{0,3}%s" % plain,
                rb"\\\\{0,3}(?i:u%04x)" % ord(each),
            ]
    return rb"(?:%s)(?:\r?\n|(?:\\r)?\\n)?" % b"|".join(ways)
