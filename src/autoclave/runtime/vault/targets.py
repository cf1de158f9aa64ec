"""The target of a request: what it may consist of, and the one way to read its path. Pure.

What is sent are the bytes that were judged here; whatever servers are known to read in two ways is refused.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote

from autoclave.core import InputError

_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*")
"""As RFC 3986 has it, and brackets: many clients write them as they are, and no rule depends on a query."""
AMBIGUOUS = re.compile(r"[%\\?#;\x00-\x1f\x7f]|//|/\.{1,2}(?:/|\Z)")
"""Of a path that was decoded: what might be decoded again, cut off, or resolved on the way."""


def path_of(target: str) -> str:
    """The decoded path of a target, if there is only one way to read it.

    Raises InputError where there are several, or a character may not be in a target.
    """
    path, mark, query = target.partition("?")
    if not _PATH.fullmatch(path):
        raise InputError(f"path {path[:200]!r}: must be absolute and plain, of the characters that RFC 3986 allows")
    if mark and not _QUERY.fullmatch(query):
        raise InputError(f"query of {path[:200]!r}: has characters that RFC 3986 does not allow")
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise InputError(f"path {path[:200]!r}: must be UTF-8") from None
    if "%2f" in path.lower() or AMBIGUOUS.search(decoded):
        raise InputError(f"path {path[:200]!r}: can be read in several ways")
    return decoded


def plain_path(target: str) -> str:
    """The path of a target in its one spelling. Raises InputError as `path_of`."""
    return quote(path_of(target))


def with_parameter(target: str, name: str, old: str, new: str) -> str | None:
    """The target with the first parameter of this name and value given another value; all else stays as it is, byte by
    byte. None if there is no such parameter.
    """
    path, mark, query = target.partition("?")
    parts = query.split("&")
    for number, part in enumerate(parts):
        if parse_qsl(part, keep_blank_values=True, separator="&") == [(name, old)]:
            parts[number] = f"{part.partition('=')[0]}={new}"
            return f"{path}{mark}{'&'.join(parts)}"
    return None
