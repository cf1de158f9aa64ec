"""How a value may stand in bytes: the ways in which its characters are written there. Pure.

Texts are written plain, in percent-encoding (also twice), in JSON (also within a string of JSON) and in entities of
HTML, each character in its own way, in capitals or not; and whole in UTF-16, in hexadecimal digits, and in base64
wherever they begin in it. A way is a regular expression for each unit, and how another unit is written like it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from html.entities import html5

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FOR_URLS = _STANDARD[:62] + b"-_"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_LEAST_CORE = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """A character: `ways` are expressions of which each begins with a byte that stands for itself."""

    ways: tuple[bytes, ...]
    value: str

    @property
    def pattern(self) -> bytes:
        """One expression for all ways."""
        return b"(?:%s)" % b"|".join(self.ways)


@dataclass(frozen=True, slots=True)
class Border:
    """A character of base64 that a value shares with its neighbour: `bits` are those of the value, in their place."""

    bits: int = 0
    mask: int = 0
    alphabet: bytes = _STANDARD

    def moved_to(self, other: Border, character: int) -> int:
        """The character with the bits of another value, if those of this one are in it."""
        number = _STANDARD.find(bytes([character]).translate(_TO_STANDARD))
        is_own = self.mask and number >= 0 and number & self.mask == self.bits
        return self.alphabet[(number & ~self.mask) | other.bits] if is_own else character


@dataclass(frozen=True, slots=True)
class Spelling:
    """A value in one way, with the name of that; `rewrite` writes a unit in the way that another one was found in."""

    way: str
    units: tuple[Unit, ...]
    rewrite: Callable[[bytes, str], bytes]
    before: Border = Border()
    after: Border = Border()


def spellings(value: str, least: int = _LEAST_CORE) -> Iterator[Spelling]:
    """All ways in which a value may stand in bytes; in base64 with at least so many characters of its own."""
    yield Spelling("as it is", tuple(_literal(each.encode(), each) for each in value), lambda _, other: other.encode())
    yield Spelling("text", tuple(_in_text(each) for each in value), _like_in_text)
    for encoding in ("utf-16-le", "utf-16-be"):
        units = tuple(_literal(each.encode(encoding), each) for each in value)
        yield Spelling(encoding, units, lambda _, other, encoding=encoding: other.encode(encoding))
    digits = tuple(_in_digits(each) for each in value)
    yield Spelling("digits", digits, lambda _, other: other.encode().hex().encode())
    yield from _in_base64(value.encode(), least)


def _literal(raw: bytes, value: str) -> Unit:
    return Unit((re.escape(raw),), value)


@cache
def _in_text(character: str) -> Unit:
    cases = dict.fromkeys((character, character.swapcase() if character.isascii() else character))
    ways = [re.escape(each.encode()) for each in cases]
    for each in cases:
        code, raw = ord(each), each.encode()
        ways.append(b"".join(b"%%(?:25){0,2}(?i:%02x)" % byte for byte in raw))
        halves = each.encode("utf-16-be").hex()
        ways.append(b"".join(rb"\\\\{0,3}(?i:u%s)" % halves[at : at + 4].encode() for at in range(0, len(halves), 4)))
        if code < 256:
            ways.append(rb"\\\\{0,3}x(?i:%02x)" % code)
        ways.append(rb"&#(?:0{0,6}%d|[xX]0{0,6}(?i:%x));?" % (code, code))
        ways += [b"&%s" % re.escape(name.encode()) for name, text in html5.items() if text == each and name[-1] == ";"]
    if not character.isalnum():
        ways.append(rb"\\\\{0,3}%s" % re.escape(character.encode()))
    if character == " ":
        ways.append(rb"\+")
    return Unit(tuple(ways), character)


def _like_in_text(token: bytes, other: str) -> bytes:
    """Another ASCII character as `token` has its own."""
    if len(token) == 1:
        return other.encode()
    if token.startswith(b"&"):
        return (b"&#x%x;" if token[2:3] in b"xX" else b"&#%d;") % ord(other)
    number_of_digits = 4 if re.match(rb"\\+[uU]", token) else 2
    return token[:-number_of_digits] + b"%0*X" % (number_of_digits, ord(other))


def _in_digits(character: str) -> Unit:
    raw = character.encode().hex()
    ways = dict.fromkeys((raw.encode(), raw.upper().encode()))
    return Unit(tuple(ways), character)


# --- Base64 ----------------------------------------------------------------------------------------------------------


def _in_base64(raw: bytes, least: int) -> Iterator[Spelling]:
    """One for each of the three places at which a value may begin, in both alphabets.

    It is what is the same whatever comes before and after, with the bits of the characters around that.
    """
    for alphabet in (_STANDARD, _FOR_URLS):
        for offset in range(3):
            encoded = base64.b64encode(bytes(offset) + raw + bytes(3), alphabet[62:])
            start, end = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
            if end - start < least:
                continue
            own_before, own_after = start * 6 - offset * 8, (offset + len(raw)) * 8 - end * 6
            before = alphabet.index(encoded[start - 1]) if own_before else 0
            after = alphabet.index(encoded[end]) if own_after else 0
            units = [_of_base64(character) for character in encoded[start:end].decode()]
            yield Spelling(
                f"base64 with {alphabet[62:].decode()} from {offset}",
                tuple(units),
                _like_in_base64,
                Border(before, (1 << own_before) - 1, alphabet),
                Border(after, (63 << (6 - own_after)) & 63, alphabet),
            )


@cache
def _of_base64(character: str) -> Unit:
    """A character of base64, after which a line may end."""
    ways = [re.escape(character.encode())]
    if not character.isalnum():
        ways += [
            b"%%(?:25){0,2}(?i:%02x)" % ord(character),
            rb"\\\\{0,3}%s" % ways[0],
            rb"\\\\{0,3}(?i:u%04x)" % ord(character),
        ]
    ends = rb"(?:\r?\n|(?:\\r)?\\n)?"
    return Unit(tuple(way + ends for way in ways), character)


def _like_in_base64(token: bytes, other: str) -> bytes:
    """Another character of base64, with the line end of `token`."""
    ends = re.search(rb"(?:\r?\n|(?:\\r)?\\n)?\Z", token)
    return other.encode() + (ends[0] if ends else b"")
