"""What stands in an answer for what cannot be sent back as it was: the key of the service, and numbers, names and bytes
that data here cannot hold. Pure.

The marks are the same in every session, so that two looks at one thing are the same. What has one in it is sent to
nobody: so a key is never written where only an answer had it, and nothing is put back as something else.
"""

from __future__ import annotations

import json
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.vault.traces import found_in

_MARK = "autoclave-hides-"
KEY = f"{_MARK}key"
"""In place of the key."""


def mark_for(text: str) -> str:
    """In place of something that is written so."""
    return _MARK + text


def has_mark(value: Any) -> bool:
    """Whether there is a mark anywhere in JSON data, however it is spelled there."""
    return bool(found_in(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), {"mark": _MARK}))


def require_no_mark(where: str, value: Any) -> None:
    """Look whether JSON data can be sent as it is.

    Raises:
        InputError: it has a mark in it.
    """
    if has_mark(value):
        raise InputError(
            f"{where}: has {_MARK}... in it, which stands for a key or for what cannot be written as it was; "
            "leave that out"
        )
