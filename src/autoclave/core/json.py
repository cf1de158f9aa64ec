"""Nouns to JSON and back, strictly.

A noun is a dataclass; pydantic checks types, and unknown keys are errors where the class says so. Nothing here opens
a file (see `files.py`). Errors become one line: place, value, rule, mend.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from autoclave.core.errors import DataError

T = TypeVar("T")


@cache
def _adapter(noun: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(noun)


def canonical_json(value: Any) -> bytes:
    """The one spelling of `value` that digests are taken of: sorted keys, no blanks, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def to_plain(noun: Any) -> Any:
    """`noun` as dicts, lists, text and numbers, ready for `json.dumps`."""
    return _adapter(type(noun)).dump_python(noun, mode="json")


def from_plain(noun: type[T], value: Any, where: str) -> T:
    """A `noun` from parsed JSON.

    Raises:
        DataError: a key is unknown or missing, or a value has the wrong type; the message begins with `where`.
    """
    try:
        return _adapter(noun).validate_python(value)
    except ValidationError as error:
        raise DataError(f"{where}: {describe(error, known=_field_names(noun))}") from None


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object in `text`.

    Raises:
        DataError: not JSON, or not an object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}); each line must be one JSON object") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def describe(error: ValidationError, known: frozenset[str] = frozenset()) -> str:
    """The first complaint of a pydantic error in one line: `path = value: rule`, with the nearest name if unknown."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "value"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        name = str(first["loc"][-1])
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}" if known else ""
        return f"{path}: no such field" + (f"; {hint}" if hint else "")
    if first["type"] in ("missing", "missing_argument"):
        return f"{path}: required field is missing"
    rule = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    shown = repr(first.get("input"))
    return f"{path} = {shown if len(shown) <= 60 else shown[:57] + '...'}: {rule[:1].lower()}{rule[1:]}"


def _field_names(noun: type[Any]) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(noun)) if dataclasses.is_dataclass(noun) else frozenset()
