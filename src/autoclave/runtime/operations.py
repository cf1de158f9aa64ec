"""An operation out of JSON data, by what managers offer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from autoclave.config import Config
from autoclave.core import UsageError
from autoclave.core.json import first_error, nearest, rule_of, shown


def operation_from(given: Mapping[str, Any], known: Mapping[str, type[Config]], where: str) -> Config:
    """Return the operation that JSON data says; a UsageError begins with `where`."""
    name = given.get("do")
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"{where}: do = {shown(name)}: no such operation; {nearest(str(name), sorted(known))}")
    try:
        is_text = _is_encodable(given)
    except RecursionError:
        raise UsageError(f"{where}: is nested too deeply") from None
    if not is_text:
        raise UsageError(f"{where}: has a half of a character (a lone surrogate), which no file system takes")
    try:
        return known[name].model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        place = ".".join(str(part) for part in first["loc"]) or "do"
        raise UsageError(f"{where}: {place}: {rule_of(first['msg'])}") from None


def _is_encodable(value: Any) -> bool:
    """Whether all texts in JSON data are text, or bytes as Python has them in names (surrogate escapes)."""
    if isinstance(value, str):
        try:
            return bool(value.encode("utf-8", "surrogateescape")) or not value
        except UnicodeEncodeError:
            return False
    if isinstance(value, Mapping):
        return all(map(_is_encodable, value)) and all(map(_is_encodable, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_encodable, value))
