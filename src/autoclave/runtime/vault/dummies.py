"""Dummies: what code and models see in place of a secret. Pure.

A dummy has the length, the separators and the alphabets of its secret, and its prefix if that is one that services are
known to give to all keys, so that code which looks at the form of a key goes on; that of a JWT has its header, and its
times as the only claims. All else is drawn: what merely looks like a prefix may be a part of the secret. It is made
from a key of the session: another session, another dummy. So one that turns up where it does not belong says which
session it came from.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import string
import zlib
from collections.abc import Iterator

from autoclave.core import InputError
from autoclave.core.json import foreign_json

_KNOWN_PREFIXES = re.compile(
    r"sk-(?:proj-|svcacct-|admin-|or-v1-|lf-|ant-(?:(?:api|admin|oat|sid)[0-9]{2}-)?)?|[spr]k_(?:live|test)_|whsec_"
    r"|gh[pousr]_|github_pat_|gl(?:pat|dt|rt|ptt|cbt|oas)-|xox[abeprs]-|xapp-|A[KS]IA|ya29\.|AIza|GOCSPX-|eyJ"
    r"|hf_|npm_|pypi-|gsk_|xai-|pplx-|r8_|SG\.|key-|do[opr]_v1_|shp(?:at|ca|pa|ss)_|ntn_|secret_|lin_api_|figd_|hvs\."
    r"|NRAK-|PMAK-|dapi|sbp_|pscale_tkn_|sntrys_|ATATT3x"
)
_SEPARATORS = "-_."
_LEAST_DRAWN = 6
"""With fewer a dummy, or the key, would be met by chance in what goes by."""
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TIMES = ("exp", "iat", "nbf")
_GITHUB = re.compile(r"gh[pousr]_[0-9A-Za-z]{36}")


def dummy_of(value: str, service: str, session_key: bytes) -> str:
    """The dummy of a secret in a session: always the same, and never the secret itself.

    Raises:
        InputError: too little of the secret is there to be drawn.
    """
    rest = value[len(_prefix(value)) :]
    if sum(character.isascii() and character.isalnum() for character in rest) < _LEAST_DRAWN:
        raise InputError(
            f"the key of {service}: needs at least {_LEAST_DRAWN} letters or digits after what all keys of its kind "
            "begin with, or no dummy can be told from it"
        )
    for attempt in range(100):
        dummy = _drawn(value, hmac.digest(session_key, f"{service}/{attempt}".encode(), "sha256"))
        if dummy.lower() != value.lower():
            return dummy
    raise AssertionError("a hundred draws of six characters are not all the same")


def _drawn(value: str, seed: bytes) -> str:
    return _drawn_token(value, seed) or _drawn_by_kinds(value, seed)


def _drawn_token(value: str, seed: bytes) -> str:
    """The dummy of a JWT: one with the same header and times, no other claims, and a signature by nobody."""
    header, payload, signature = (*value.split("."), "", "")[:3]
    try:
        about, claims = (foreign_json(raw) for raw in (_raw(header), _raw(payload)))
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
    known = _KNOWN_PREFIXES.match(value)
    return known[0] if known else ""


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
