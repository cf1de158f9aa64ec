"""Nouns to JSON and back, strictly.

A noun is a dataclass; pydantic checks types, and unknown keys are errors where the class says so. Nothing here opens
a file (see `files.py`). Errors become one line: place, value, rule, fix.
"""

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from autoclave.core.errors import DataError, InputError

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

DEPTH_LIMIT = 200
"""Deepest nesting of lists and objects in a line; below what any JSON library of ours can take."""


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of all that is no object, or an empty one, in nested objects."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def upwards(dotted: str) -> list[str]:
    """`dotted` itself, the block around it, and so on."""
    return [dotted, *upwards(dotted.rpartition(".")[0])] if dotted else []


@cache
def _adapter(noun: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(noun)


def canonical_json(value: Any) -> bytes:
    """The one spelling of `value` that digests are taken of: sorted keys, no blanks, ASCII."""
    return json.dumps(value, default=_parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def finite(value: Any) -> Any:
    """`value` with None in place of every number that JSON does not have: NaN and the infinities."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_plain(noun: Any) -> Any:
    """`noun` as dicts, lists, text and numbers, ready for `json.dumps`."""
    return json.loads(json.dumps(noun, default=_parts))


def _parts(value: Any) -> Any:
    """Encode what `json` cannot: dataclasses and dates. (pydantic would write infinity as null.)"""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def from_plain(noun: type[T], value: Any, where: str) -> T:
    """A `noun` from parsed JSON.

    Raises DataError: a key is unknown or missing, or a value has the wrong type; the message begins with `where`.
    """
    try:
        return _adapter(noun).validate_python(value)
    except ValidationError as error:
        raise DataError(f"{where}: {_complaint(noun, value, error)}") from None


def foreign_json(text: str | bytes, *, is_exact: bool = False) -> Any:
    """Parse JSON of an untrusted source.

    `is_exact`: each number is the one that stands in the text, not the nearest that a float can hold.

    Raises ValueError: it is none, has numbers that are none in JSON or would be rounded, or is nested deeper than
    `DEPTH_LIMIT`.
    """
    try:
        value = _read(text, is_exact=is_exact)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if is_deeper(value, DEPTH_LIMIT):
        raise ValueError("nested too deeply")
    return value


def _read(text: str | bytes, *, is_exact: bool) -> Any:
    return json.loads(text, parse_float=exact_float if is_exact else None, parse_constant=_no_number)


def exact_float(text: str) -> float:
    """Return the number that stands in `text`; raise ValueError if a float is not exactly that."""
    value = float(text)
    try:
        is_exact = math.isfinite(value) and Decimal(text) == Decimal(repr(value))
    except ArithmeticError:  # an exponent that even Decimal does not hold
        is_exact = False
    if not is_exact:
        raise ValueError(f"the number {text[:40]} would be rounded to {value!r}: give it as a text, in quotes")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def parse_object(text: str, where: str, *, is_exact: bool = False) -> dict[str, Any]:
    """The JSON object in `text`, one line. `is_exact`: see `foreign_json`.

    Raises DataError: not JSON, not an object, or nested deeper than `DEPTH_LIMIT`; or a number would be rounded.
    """
    try:
        text = text.rstrip()
        value: Any = _read(text, is_exact=True) if is_exact else json.loads(text)
    except json.JSONDecodeError as error:
        what = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        raise DataError(f"{where}: not valid JSON ({what}); each line must be one JSON object") from None
    except ValueError as error:  # a number that is not taken
        raise DataError(f"{where}: not usable JSON ({str(error).partition(';')[0]})") from None
    except RecursionError:
        raise DataError(f"{where}: nested deeper than {DEPTH_LIMIT} levels") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, found {shown(value)}")
    found = cast("dict[str, Any]", value)
    if text.count("[") + text.count("{") > DEPTH_LIMIT and is_deeper(found, DEPTH_LIMIT):
        raise DataError(f"{where}: nested deeper than {DEPTH_LIMIT} levels")
    return found


def is_deeper(value: Any, limit: int) -> bool:
    """Return whether lists and objects are nested deeper than that."""
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        level = [child for parent in level for child in _children(parent) if isinstance(child, (dict, list))]
    return bool(level)


def _children(parent: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent


def shown(value: Any, limit: int = 60) -> str:
    """`value` as JSON for a message: printable, on one line, cut after `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
        text = text if text.isprintable() else json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def first_error(error: ValidationError) -> ErrorDetails:
    """The one to complain about: an unknown name, since it often is why another is missing, else the first."""
    errors = error.errors(include_url=False)
    return next((found for found in errors if found["type"] in _UNKNOWN), errors[0])


def rule_of(message: str) -> str:
    """The rule that pydantic reports, as the end of a sentence about the value."""
    message = re.sub(r"^(Value error|Assertion failed), ", "", message)
    message = re.sub(r"^[A-Z][a-z]+ should ", "must ", message)
    message = re.sub(r"must be a valid dictionary or .*", "must be an object", message)
    return message[:1].lower() + message[1:]


def validated(model: type[M], given: object, where: str, whole: str = "it") -> M:
    """Return a model out of JSON data.

    Raises InputError: it is not valid; the message is `WHERE: PLACE: RULE`, with `whole` as the place of all of it.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        place = ".".join(map(str, first["loc"])) or whole
        if first["type"] in ("literal_error", "string_pattern_mismatch"):
            place = f"{place} = {shown(first['input'])}"
        raise InputError(f"{where}: {place}: {rule_of(first['msg'])}") from None


_LISTED = 60


def nearest(name: str, known: Sequence[str]) -> str:
    """The fix for a name that is not known."""
    import difflib

    if near := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {near[0]}?"
    listed = sorted(known)[:_LISTED]
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"known are {', '.join(listed)}{more}"


def _complaint(noun: type[Any], value: Any, error: ValidationError) -> str:
    """The first complaint of pydantic in one line: `path = value: rule`, with the nearest name if one is unknown."""
    first = first_error(error)
    kind, location = first["type"], first["loc"]
    is_missing = kind in ("missing", "missing_argument")
    path = ".".join(_as_written(value, location, ends_in_file=not is_missing)) or "value"
    if kind in _UNKNOWN:
        return f"{path}: no such field; {nearest(str(location[-1]), _fields_at(noun, location[:-1]))}"
    if is_missing:
        return f"{path}: required field is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        context = first.get("ctx", {})
        key = str(context.get("discriminator", "kind")).strip("'")
        known, given = list(_tags(noun, location, key)), context.get("tag")
        if given is None:
            return f"{path}.{key}: required field is missing; known are {', '.join(known)}"
        return f"{path}.{key} = {shown(given)}: no such {key}; {nearest(given, known)}"
    return f"{path} = {shown(first.get('input'))}: {rule_of(first['msg'])}"


def _as_written(value: Any, location: Sequence[str | int], *, ends_in_file: bool) -> Iterator[str]:
    """The location without the tags of union members, which pydantic puts in and the file does not have."""
    for position, part in enumerate(location):
        is_there = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if is_there:
            value = cast("Any", value)[part]
        elif ends_in_file or position < len(location) - 1:
            continue
        yield str(part) if str(part).isprintable() else shown(part)


def _fields_at(noun: Any, location: Sequence[str | int]) -> list[str]:
    return [field.name for found in _classes_at(noun, location) for field in dataclasses.fields(found)]


def _tags(noun: Any, location: Sequence[str | int], key: str) -> Iterator[str]:
    for found in _classes_at(noun, location):
        yield from get_args(get_type_hints(found)[key])


def _classes_at(noun: Any, location: Sequence[str | int]) -> list[type[Any]]:
    """The dataclasses that may stand at `location`."""
    classes = _dataclasses_in(noun)
    for part in location:
        hints = [get_type_hints(found) for found in classes]
        if any(part in hint for hint in hints):
            classes = [inner for hint in hints if part in hint for inner in _dataclasses_in(hint[part])]
        elif isinstance(part, str):  # the tag of a member of a union
            tagged = [found for found, hint in zip(classes, hints, strict=True) if part in _tags_of(hint)]
            classes = tagged or classes
    return classes


def _tags_of(hint: dict[str, Any]) -> tuple[Any, ...]:
    return (*get_args(hint.get("kind")), *get_args(hint.get("name")))


def _dataclasses_in(annotation: Any) -> list[type[Any]]:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _dataclasses_in(argument)]
