"""Headers that a catalogue or an argument can set, and what may be in them. Pure."""

from __future__ import annotations

import re

from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.runtime.vault.injection import is_passed_on

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_RESERVED = frozenset({"authorization", "cookie", "content-type", "if-match", "if-none-match"})
"""Those with a place of their own: keys are in the vault, the others follow from the body and the look."""


def is_header(name: str) -> bool:
    """Whether a header can be set: it is no part of HTTP itself, and nobody else sets it."""
    return bool(_NAME.fullmatch(name) and name.lower() not in _RESERVED and is_passed_on(name.encode()))


def require_header(where: str, name: str) -> None:
    """Look whether a header can be set.

    Raises:
        InputError: it cannot.
    """
    if not is_header(name):
        raise InputError(
            f"{where}: {name!r} is no header that a catalogue can set: keys, conditions, the framing of requests and "
            "what has them taken for others are not its to say"
        )


def require_value(where: str, value: str) -> None:
    """Look whether a text can be in a header.

    Raises:
        InputError: it cannot.
    """
    if not _VALUE.fullmatch(value):
        raise InputError(f"{where} = {shown(value)}: must be printable ASCII, since it goes into a header")
