"""Dummies: what code and models see in place of a secret, and how real ones and dummies are found in bytes. Pure.

A dummy has the length, the prefix, the separators and the alphabets of its secret, so that code which looks at the form
of a key goes on. It is made from a key of the session: another session, another dummy. So one that turns up where it
does not belong says which session it came from.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import string
import zlib
from collections.abc import Iterator, Mapping
from urllib.parse import quote

_KNOWN_PREFIXES = re.compile(
    r"(sk-(?:[a-z]+-)*|gh[pousr]_|github_pat_|xox[abeprs]-|xapp-|AKIA|ASIA|ya29\.|glpat-|hf_|AIza|npm_|pypi-|eyJ)"
)
_SEPARATORS = "-_."
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_GITHUB = re.compile(r"gh[pousr]_[0-9A-Za-z]{36}")


def dummy_of(value: str, service: str, session_key: bytes) -> str:
    """The dummy of a secret in a session: always the same, and never the secret itself."""
    for attempt in range(100):
        dummy = _drawn(value, hmac.digest(session_key, f"{service}/{attempt}".encode(), "sha256"))
        if dummy != value:
            return dummy
    raise ValueError("the secret is all prefix and separators: no dummy can be told from it")


def _drawn(value: str, seed: bytes) -> str:
    kept = len(_prefix(value))
    is_hexadecimal = not set(value[kept:].lower()) - set(string.hexdigits.lower() + _SEPARATORS)
    numbers = _numbers(seed)
    drawn = value[:kept] + "".join(_like(character, is_hexadecimal, numbers) for character in value[kept:])
    return _with_checksum(drawn) if _GITHUB.fullmatch(value) else drawn


def _prefix(value: str) -> str:
    if known := _KNOWN_PREFIXES.match(value):
        return known[0]
    first_third = value[: len(value) // 3]
    last = max(first_third.rfind(separator) for separator in _SEPARATORS)
    return value[: last + 1]


def _like(character: str, is_hexadecimal: bool, numbers: Iterator[int]) -> str:
    """Another character of the same kind."""
    if character in string.digits and not is_hexadecimal:
        alphabet = string.digits
    elif character.lower() in string.hexdigits and is_hexadecimal:
        alphabet = string.digits + ("ABCDEF" if character.isupper() else "abcdef")
    elif character in string.ascii_lowercase:
        alphabet = string.ascii_lowercase
    elif character in string.ascii_uppercase:
        alphabet = string.ascii_uppercase
    else:
        return character
    return alphabet[next(numbers) % len(alphabet)]


def _numbers(seed: bytes) -> Iterator[int]:
    block = 0
    while True:
        yield from hashlib.sha512(seed + block.to_bytes(4, "big")).digest()
        block += 1


def _with_checksum(token: str) -> str:
    """With the last six characters as GitHub makes them: the CRC32 of the part before, in base 62."""
    body, number, text = token[4:-6], zlib.crc32(token[4:-6].encode()), ""
    while number:
        number, digit = divmod(number, 62)
        text = _BASE62[digit] + text
    return token[:4] + body + text.rjust(6, "0")


# --- Finding ---------------------------------------------------------------------------------------------------------


def forms(value: str) -> tuple[bytes, ...]:
    """How a value may stand in bytes: plain, percent-encoded, in JSON, and in base64 wherever it begins in it."""
    raw = value.encode()
    plain = [raw, quote(value, safe="").encode(), quote(value).encode(), json.dumps(value)[1:-1].encode()]
    return tuple(dict.fromkeys([*plain, *_base64_forms(raw)]))


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """What is the same of its base64, whatever comes before and after."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            encoded = encode(bytes(offset) + raw)
            start = -(-offset * 8 // 6)
            end = (offset + len(raw)) * 8 // 6
            if end - start >= 8:
                yield encoded[start:end]


def found_in(content: bytes, values: Mapping[str, str]) -> list[str]:
    """The names of those values that stand in bytes, in one of their forms."""
    return [name for name, value in values.items() if any(form in content for form in forms(value))]


class Replacer:
    """Replaces values in a stream of bytes, in all their forms, also across the borders of pieces."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs: dict[bytes, bytes] = {}
        for value, other in pairs.items():
            self._pairs |= dict(zip(forms(value), _aligned(value, other), strict=True))
        longest_first = sorted(self._pairs, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")
        self._most_held = max(map(len, self._pairs), default=1) - 1
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on by now."""
        content = self._held + piece
        safe = max(0, len(content) - self._most_held)
        out, place = b"", 0
        for found in self._pattern.finditer(content):
            if found.start() >= safe:
                break
            out += content[place : found.start()] + self._pairs[found[0]]
            place = found.end()
        end = max(place, safe)
        self._held = content[end:]
        return out + content[place:end]

    def flush(self) -> bytes:
        """The rest."""
        rest, self._held = self._held, b""
        return self._pattern.sub(lambda found: self._pairs[found[0]], rest)

    def whole(self, content: bytes) -> bytes:
        """All of it at once."""
        return self._pattern.sub(lambda found: self._pairs[found[0]], content)


def _aligned(value: str, other: str) -> list[bytes]:
    """For each form of `value` the same form of `other`, which is as long."""
    raw = other.encode()
    plain = [raw, quote(other, safe="").encode(), quote(other).encode(), json.dumps(other)[1:-1].encode()]
    pairs = dict(
        zip([*_plain_forms(value), *_base64_forms(value.encode())], [*plain, *_base64_forms(raw)], strict=True)
    )
    return [pairs[form] for form in forms(value)]


def _plain_forms(value: str) -> list[bytes]:
    return [value.encode(), quote(value, safe="").encode(), quote(value).encode(), json.dumps(value)[1:-1].encode()]
