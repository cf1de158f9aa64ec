"""Find predicted final values on the last line of a response, and compare them. Pure.

Both sides are untrusted: the response of a model, and values of some program. Nothing here evaluates either.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, cast

MAX_LINE_LENGTH = 100_000
"""Longest last line that is parsed, in characters."""


class BadAnswerError(ValueError):
    """The last line of a response is not a valid answer; the message has the reason."""


def last_object(response: str) -> dict[str, Any]:
    """Return the JSON object on the last line of `response` that is not blank.

    Strict JSON without repeated keys, but with the numbers `NaN`, `Infinity` and `-Infinity`.

    Raises BadAnswerError: the line is not such an object.
    """
    line = response.rstrip().rpartition("\n")[2].strip()
    if not line:
        raise BadAnswerError("the response is empty")
    if len(line) > MAX_LINE_LENGTH:
        raise BadAnswerError("the last line is too long")
    try:
        found: Any = json.loads(line, object_pairs_hook=_unique)
    except BadAnswerError:
        raise
    except (ValueError, RecursionError):
        raise BadAnswerError("the last line is not JSON") from None
    if not isinstance(found, dict):
        raise BadAnswerError("the last line is not a JSON object")
    return cast("dict[str, Any]", found)


def which_right(
    expected: Mapping[str, Any], given: Mapping[str, Any], *, float_tolerance: float = 0.0
) -> dict[str, bool]:
    """Return for each variable in `expected` whether its value in `given` is equal; extra variables do not count."""
    return {
        name: name in given and is_same(value, given[name], float_tolerance=float_tolerance)
        for name, value in expected.items()
    }


def is_same(expected: Any, given: Any, *, float_tolerance: float = 0.0) -> bool:
    """Return whether `given`, from JSON, is `expected`, equal and of one type: 1, 1.0, True and "1" all differ.

    NaN equals NaN, and 0.0 equals -0.0. A float may differ by `float_tolerance` times the expected one. Tuples and sets
    are lists in JSON, sets in any order, and keys of dicts are strings (`as_json`).
    """
    match expected:
        case list() | tuple() | set() | frozenset():
            if type(given) is not list or len(given) != len(cast("list[Any]", expected)):
                return False
            is_ordered = isinstance(expected, list | tuple)
            one = cast("list[Any]", list(expected) if is_ordered else sorted(expected, key=written))
            try:
                other = cast("list[Any]", given if is_ordered else sorted(given, key=written))
            except RecursionError:
                return False  # JSON nests deeper than `written` follows, and deeper than any member of a set of ours
            return all(is_same(a, b, float_tolerance=float_tolerance) for a, b in zip(one, other, strict=True))
        case dict():
            own = {_key(key): value for key, value in cast("dict[Any, Any]", expected).items()}
            if type(given) is not dict or own.keys() != given.keys():
                return False
            return all(is_same(value, given[key], float_tolerance=float_tolerance) for key, value in own.items())
        case float():
            return type(given) is float and _is_same_float(expected, given, float_tolerance)
        case _:
            return type(expected) is type(given) and expected == given


def as_json(value: Any) -> Any:
    """Return `value`, of builtin types, with tuples and sets as lists, and keys as strings."""
    match value:
        case list() | tuple():
            return [as_json(inner) for inner in cast("list[Any]", value)]
        case set() | frozenset():
            return sorted((as_json(inner) for inner in cast("set[Any]", value)), key=written)
        case dict():
            return {_key(key): as_json(inner) for key, inner in cast("dict[Any, Any]", value).items()}
        case _:
            return value


def written(value: Any) -> str:
    """Return `value` as JSON on one line. Raises TypeError: JSON has no form for it, such as for bytes."""
    return json.dumps(as_json(value), ensure_ascii=False)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else written(key)


def _is_same_float(expected: float, given: float, tolerance: float) -> bool:
    if math.isnan(expected) or math.isnan(given):
        return math.isnan(expected) and math.isnan(given)
    return expected == given or (math.isfinite(expected) and abs(expected - given) <= tolerance * abs(expected))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadAnswerError("a key occurs twice")
    return found
