"""Encode values as bytes and decode them, between the judge and a program. JSON with tags; decoding runs no code.

Both sides use this module: the judge imports it, a cell gets its text as part of a runner, so it uses the standard
library only. None, bool, int, finite float, str, list and dict with text keys are JSON as it is; every other kind is
an object `{"$": kind, "v": content}`. Caps: nesting, and keys that collide in a hash table, which could make the judge
slow. The receiver caps the size of a message.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

import base64
import binascii
import json
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 204
"""A line of a problem file nests up to 200; the four steps a level takes here fit the usual recursion limit."""
_TAG = "$"
_LARGE_INT_BITS = 4096  # beyond this an integer travels as hexadecimal: decimal digits take quadratic time
_MAX_COLLISIONS = 64
_SMALL = frozenset((type(None), bool, str))
_SCALARS = _SMALL | {int, float}


# The C parts of `json` alone: in a cell, memory that is not touched need not be copied.
_from_json: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_make_encoder: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_to_json: Any = _make_encoder(None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)


class NotPlainError(ValueError):
    """A value has a part that is not plain data; the message is the name of its type, or what is wrong."""


def encode(value: Any, depth: int = 0) -> bytes:
    """Return `value`, which is `depth` deep in a message, as bytes. An instance of a subclass of a builtin type is
    encoded as that type.

    Raises NotPlainError: a part is of another type, contains itself, or is nested too deep.
    """
    parts: list[Any] = value if type(value) is list else [value]
    try:
        return "".join(_to_json(value if _is_plain_json(parts) else _tagged(value, depth), 0)).encode("ascii")
    except RecursionError:
        raise NotPlainError("nested too deep") from None


def decode(content: bytes) -> Any:
    """Return the value in `content`, made of instances of exactly the builtin types.

    Raises NotPlainError: not what `encode` writes, nested too deep, or made to collide.
    """
    try:
        text = content.decode("ascii")
        value, end = _from_json(text, 0)
        if end != len(text):
            raise NotPlainError("malformed data")
        is_as_it_is = "$" not in text and "\\u0024" not in text and text.count("[") + text.count("{") <= MAX_DEPTH
        return value if is_as_it_is else _untagged(value, 0)
    except NotPlainError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error, OverflowError, StopIteration):
        raise NotPlainError("malformed data") from None


def _tagged(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotPlainError("nested too deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if number.bit_length() <= _LARGE_INT_BITS else {_TAG: "int", "v": hex(number)}
    if isinstance(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else {_TAG: "float", "v": float.__repr__(number)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return _tagged_container(value, depth + 1)
    return _tagged_rarity(value)


def _tagged_container(value: Any, depth: int) -> Any:
    # Calls the methods of the builtin types, so that a subclass does not decide what it contains.
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            iterate: Any = kind.__iter__
            parts = list(iterate(value))
            if depth > MAX_DEPTH or not _is_plain_json(parts):
                parts = [_tagged(part, depth) for part in parts]
            return parts if kind is list else {_TAG: kind.__name__, "v": parts}
    items: Any = dict.items
    pairs: list[tuple[Any, Any]] = list(items(value))
    if all(type(key) is str and key != _TAG for key, _ in pairs):
        return {key: _tagged(part, depth) for key, part in pairs}
    return {_TAG: "dict", "v": [[_tagged(key, depth), _tagged(part, depth)] for key, part in pairs]}


def _is_plain_json(parts: "list[Any]") -> bool:
    """Return whether all parts are scalars of one type or text, and JSON as they are. Makes few passes over them."""
    kinds = set(map(type, parts))
    if kinds == {int}:
        return max(map(int.bit_length, parts)) <= _LARGE_INT_BITS
    return kinds <= _SMALL or (kinds == {float} and all(map(math.isfinite, parts)))


def _tagged_rarity(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_TAG: "bytes", "v": base64.b64encode(bytes.__getitem__(value, slice(None))).decode("ascii")}
    if isinstance(value, bytearray):
        return {_TAG: "bytearray", "v": base64.b64encode(bytearray.__getitem__(value, slice(None))).decode("ascii")}
    if isinstance(value, complex):
        return {_TAG: "complex", "v": [_tagged(value.real, 0), _tagged(value.imag, 0)]}
    if type(value) in (Fraction, Decimal):
        return _tagged(_as_number(value), 0)
    if _is_numpy_scalar(value) and type(plain := value.item()) in (bool, int, float, complex):
        return _tagged(plain, 0)
    raise NotPlainError(type(value).__name__)


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # only where a profile has it
    return numpy is not None and isinstance(value, numpy.generic)


def _as_number(value: Any) -> "int | float":
    """The builtin number that equals `value`: comparing them gives what comparing `value` itself would."""
    for kind in (int, float):
        try:
            number = kind(value)
        except (ValueError, OverflowError):
            continue
        if number == value:
            return number
    raise NotPlainError(type(value).__name__)


def _untagged(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise NotPlainError("nested too deep")
    if type(value) is list:
        return _untagged_list(value, depth + 1)
    if type(value) is not dict:
        return value
    document: dict[str, Any] = value
    if _TAG not in document:
        return {key: _untagged(part, depth + 1) for key, part in document.items()}
    return _DECODERS[document[_TAG]](document["v"], depth + 1)


def _untagged_list(content: Any, depth: int) -> "list[Any]":
    if type(content) is not list:
        raise NotPlainError("malformed data")
    parts: list[Any] = content
    is_flat = depth <= MAX_DEPTH + 1 and _SCALARS.issuperset(map(type, parts))
    return parts if is_flat else [_untagged(part, depth) for part in parts]


def _untagged_dict(content: Any, depth: int) -> "dict[Any, Any]":
    pairs = [tuple(_untagged_list(pair, depth)) for pair in content]
    _refuse_collisions([key for key, _ in pairs])
    return dict(pairs)


def _untagged_set(content: Any, depth: int) -> "set[Any]":
    parts = _untagged_list(content, depth)
    _refuse_collisions(parts)
    return set(parts)


def _untagged_float(content: Any, _depth: int) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise NotPlainError("malformed data")
    return float(content)


def _bytes(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _refuse_collisions(keys: "list[Any]") -> None:
    """Refuse many different keys of one hash value, which make building a table take quadratic time."""
    hashes = sorted(map(hash, keys))
    if any(first == last for first, last in zip(hashes, hashes[_MAX_COLLISIONS:], strict=False)):
        raise NotPlainError("keys made to collide")


_DECODERS: "dict[str, Callable[[Any, int], Any]]" = {
    "int": lambda content, depth: int(content, 16),
    "float": _untagged_float,
    "tuple": lambda content, depth: tuple(_untagged_list(content, depth)),
    "dict": _untagged_dict,
    "set": _untagged_set,
    "frozenset": lambda content, depth: frozenset(_untagged_set(content, depth)),
    "bytes": lambda content, depth: _bytes(content),
    "bytearray": lambda content, depth: bytearray(_bytes(content)),
    "complex": lambda content, depth: complex(*_untagged_list(content, depth)),
}
