"""Dummies: what code and models see in place of a secret, and how real ones and dummies are found in bytes. Pure.

A dummy has the length, the prefix, the separators and the alphabets of its secret, so that code which looks at the form
of a key goes on; that of a JWT has its header, and its times as the only claims. It is made from a key of the session:
another session, another dummy. So one that turns up where it does not belong says which session it came from.
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
from dataclasses import dataclass
from urllib.parse import quote

_KNOWN_PREFIXES = re.compile(
    r"(sk-(?:[a-z]+-)*|gh[pousr]_|github_pat_|xox[abeprs]-|xapp-|AKIA|ASIA|ya29\.|glpat-|hf_|AIza|npm_|pypi-|eyJ)"
)
_SEPARATORS = "-_."
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_BASE64 = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_STANDARD = bytes.maketrans(b"-_", b"+/")
_ANY = b"[A-Za-z0-9+/_-]?"
_TIMES = ("exp", "iat", "nbf")
_GITHUB = re.compile(r"gh[pousr]_[0-9A-Za-z]{36}")


def dummy_of(value: str, service: str, session_key: bytes) -> str:
    """The dummy of a secret in a session: always the same, and never the secret itself."""
    for attempt in range(100):
        dummy = _drawn(value, hmac.digest(session_key, f"{service}/{attempt}".encode(), "sha256"))
        if dummy != value:
            return dummy
    raise ValueError("the secret is all prefix and separators: no dummy can be told from it")


def _drawn(value: str, seed: bytes) -> str:
    return _drawn_token(value, seed) or _drawn_by_kinds(value, seed)


def _drawn_token(value: str, seed: bytes) -> str:
    """The dummy of a JWT: one with the same header and times, no other claims, and a signature by nobody."""
    header, payload, signature = (*value.split("."), "", "")[:3]
    try:
        about, claims = (json.loads(raw) for raw in (_raw(header), _raw(payload)))
        size = len(_raw(payload))
    except ValueError:
        return ""
    if value.count(".") != 2 or not isinstance(about, dict) or not isinstance(claims, dict):
        return ""
    times = {name: claims[name] for name in _TIMES if isinstance(claims.get(name), (int, float))}
    text = json.dumps(times, separators=(",", ":"))
    if len(text) > size or not re.fullmatch(r"[\w-]{16,}", signature):
        return ""
    numbers = _numbers(seed)
    drawn = bytes(next(numbers) for _ in range(len(signature) * 3 // 4))
    return f"{header}.{_unpadded(text.ljust(size).encode())}.{_unpadded(drawn)}"


def _raw(part: str) -> bytes:
    return base64.urlsafe_b64decode(f"{part}===")


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _drawn_by_kinds(value: str, seed: bytes) -> str:
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
    return tuple(dict.fromkeys([*_plain_forms(value), *(each.core for each in _in_base64(value.encode()))]))


@dataclass(frozen=True, slots=True)
class _Border:
    """A character of base64 that a value shares with its neighbour: `bits` are those of the value, in their place."""

    bits: int
    mask: int

    def moved_to(self, other: _Border, character: int, alphabet: bytes) -> int:
        """The character with the bits of another value, if those of this one are in it."""
        number = _BASE64.index(_STANDARD[character])
        return alphabet[(number & ~self.mask) | other.bits] if number & self.mask == self.bits else character


@dataclass(frozen=True, slots=True)
class _InBase64:
    """What is the same of a value's base64 whatever comes before and after, and the characters around it."""

    core: bytes
    alphabet: bytes
    offset: int
    before: _Border
    after: _Border


def _in_base64(raw: bytes, least: int = 8) -> Iterator[_InBase64]:
    """One for each of the three places at which a value may begin, in both alphabets; `least`: characters of a core."""
    for alphabet in (_BASE64, _BASE64[:62] + b"-_"):
        for offset in range(3):
            encoded = base64.b64encode(bytes(offset) + raw + bytes(3), alphabet[62:])
            start, end = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
            if end - start < least:
                continue
            own_before, own_after = start * 6 - offset * 8, (offset + len(raw)) * 8 - end * 6
            before = alphabet.index(encoded[start - 1]) if own_before else 0
            after = alphabet.index(encoded[end]) if own_after else 0
            yield _InBase64(
                encoded[start:end],
                alphabet,
                offset,
                _Border(before, (1 << own_before) - 1),
                _Border(after, (63 << (6 - own_after)) & 63),
            )


def found_in(content: bytes, values: Mapping[str, str]) -> list[str]:
    """The names of those values that stand in bytes, in one of their forms."""
    return [name for name, value in values.items() if any(form in content for form in forms(value))]


class Replacer:
    """Replaces values in a stream of bytes, in all their forms, also across the borders of pieces."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._plain: dict[bytes, bytes] = {}
        self._in_base64: dict[bytes, tuple[_InBase64, _InBase64]] = {}
        for value, other in pairs.items():
            self._plain |= dict(zip(_plain_forms(value), _plain_forms(other), strict=True))
            others = {(its.alphabet, its.offset): its for its in _in_base64(other.encode(), 0)}
            for own in _in_base64(value.encode()):
                self._in_base64.setdefault(own.core, (own, others[own.alphabet, own.offset]))
        patterns = {form: re.escape(form) for form in self._plain}
        patterns |= {core: b"%s%s%s" % (_ANY, re.escape(core), _ANY) for core in self._in_base64}
        longest_first = sorted(patterns, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(patterns[form] for form in longest_first) or b"(?!)")
        self._most_held = max(map(len, patterns), default=-1) + 1
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on by now."""
        content = self._held + piece
        safe = max(0, len(content) - self._most_held)
        out, place = b"", 0
        for found in self._pattern.finditer(content):
            if found.start() >= safe:
                break
            out += content[place : found.start()] + self._other(found)
            place = found.end()
        end = max(place, safe)
        self._held = content[end:]
        return out + content[place:end]

    def flush(self) -> bytes:
        """The rest."""
        rest, self._held = self._held, b""
        return self.whole(rest)

    def whole(self, content: bytes) -> bytes:
        """All of it at once."""
        return self._pattern.sub(self._other, content)

    def _other(self, found: re.Match[bytes]) -> bytes:
        text = found[0]
        if text in self._plain:
            return self._plain[text]
        for start, end in ((0, len(text)), (1, len(text)), (0, len(text) - 1), (1, len(text) - 1)):
            if both := self._in_base64.get(text[start:end]):
                own, its = both
                before = [own.before.moved_to(its.before, each, own.alphabet) for each in text[:start]]
                after = [own.after.moved_to(its.after, each, own.alphabet) for each in text[end:]]
                return bytes(before) + its.core + bytes(after)
        raise AssertionError("the pattern has nothing else")


def _plain_forms(value: str) -> list[bytes]:
    return [value.encode(), quote(value, safe="").encode(), quote(value).encode(), json.dumps(value)[1:-1].encode()]
