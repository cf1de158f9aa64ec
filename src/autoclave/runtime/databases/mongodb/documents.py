"""Documents of MongoDB as texts that say all of them, and their keys in words. Pure.

An image holds a document in canonical Extended JSON, its fields in order. What such a text says is compared with the
document's own bytes when it is made, so what it cannot say (deprecated types, NaN with a payload, a field that occurs
twice) is refused before anything is done to it. Bytes are compared, never values: 1 and 1.0 are not the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Image

Document = dict[str, Any]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ .:@+-]*")
_OBJECT_ID = re.compile(r"[0-9a-f]{24}")
_RESERVED = frozenset({"true", "false", "null", "Infinity", "NaN"})
_EXACT = Context(prec=1200)
"""Digits enough for each double to the last one."""
_LONGEST = 40
_NUMBERS = frozenset({"$numberInt", "$numberLong", "$numberDouble", "$numberDecimal"})
_TYPES = _NUMBERS | {"$oid", "$binary", "$uuid", "$date", "$timestamp", "$regularExpression", "$minKey", "$maxKey"}
_KEPT_TYPES = _TYPES | {"$code"}
_REFUSED_TYPES = frozenset({"$code", "$scope", "$symbol", "$dbPointer", "$undefined"})


def codec() -> Any:
    """How BSON becomes values, of which the same BSON can be made."""
    from bson.codec_options import CodecOptions, DatetimeConversion

    return CodecOptions(document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS)


def image_of(data: bytes, where: str) -> Image:
    """The image of a document, given as BSON.

    Raises:
        InputError: no text says all of it. `where`: the place to be named then.
    """
    from bson import decode, json_util
    from bson.errors import BSONError

    try:
        document = decode(data, codec())
        text = json_util.dumps(document, json_options=_canonical(), separators=(",", ":"), ensure_ascii=False)
        if bytes_of(text) == data:
            return key_in_words(document["_id"]), text
    except (BSONError, InputError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass  # whatever stands in the way, it cannot be kept
    raise InputError(
        f"{where}: a document holds what cannot be kept exactly (a deprecated type, a field twice, names that begin "
        "with $, or no _id)"
    )


def bytes_of(text: str) -> bytes:
    """The BSON of a document in an image."""
    from bson import encode

    return encode(_loaded(text, _KEPT_TYPES, frozenset()), codec_options=codec())


def id_of(image: Image) -> Any:
    """The `_id` of a document in an image."""
    return _loaded(image[1], _KEPT_TYPES, frozenset())["_id"]


def statement_of(text: str) -> Document:
    """A statement in Extended JSON, as it is sent.

    Raises:
        InputError: it is none, says something twice, or holds code.
    """
    from bson.errors import BSONError

    try:
        found = _loaded(text, _TYPES, _REFUSED_TYPES)
    except InputError:
        raise
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except (BSONError, ValueError, TypeError, KeyError, OverflowError, ArithmeticError) as error:
        at = f" (character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"is no Extended JSON of MongoDB{at}") from None
    if not isinstance(found, dict):
        raise InputError("is no command: it must be one JSON object")
    return found


def key_in_words(value: Any) -> str:
    """An `_id` as a text that no other `_id` of a collection has.

    Numbers are the same to MongoDB whatever their types, and have one text.
    """
    from bson import json_util
    from bson.decimal128 import Decimal128
    from bson.objectid import ObjectId

    if isinstance(value, ObjectId):
        return f"{value}"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and not _OBJECT_ID.fullmatch(value) and value not in _RESERVED
        return value if is_plain else json.dumps(value)
    if isinstance(value, Decimal128):
        return _number_in_words(value.to_decimal())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_in_words(Decimal(value))
    return json_util.dumps(value, json_options=_canonical(), separators=(",", ":"))


def _number_in_words(number: Decimal) -> str:
    if not number.is_finite():
        return "NaN" if number.is_nan() else f"{'-' if number < 0 else ''}Infinity"
    short = number.normalize(_EXACT) if number else Decimal(0)
    return f"{short:f}" if abs(short.adjusted()) < _LONGEST else f"{short}"


def _loaded(text: str, types: frozenset[str], refused: frozenset[str]) -> Any:
    options = _canonical()

    def put_together(pairs: Sequence[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise InputError("says something twice in one object")
        if code := found.keys() & refused:
            raise InputError(f"{min(code)}: code and deprecated types are not let through")
        if named := found.keys() & types:
            if len(found) > 1 and set(found) != {"$code", "$scope"}:
                raise InputError(f"{min(named)}: a value of a type stands alone in its object")
            return _value(min(named), found, options)
        return found

    return json.loads(text, object_pairs_hook=put_together, parse_constant=_refuse_constant)


def _value(kind: str, found: Document, options: Any) -> Any:
    """What an object of Extended JSON stands for. A `$regex` is an operator, and stays an object."""
    from uuid import UUID

    from bson import json_util
    from bson.binary import Binary
    from bson.code import Code

    if kind == "$uuid":
        return Binary(UUID(found[kind]).bytes, 4)
    if kind == "$code":
        return Code(found[kind], found.get("$scope"))
    return json_util.object_hook(found, options)


def _refuse_constant(name: str) -> Any:
    raise InputError(f'{name}: is no JSON; write {{"$numberDouble": "{name}"}}')


def _canonical() -> Any:
    from bson.codec_options import DatetimeConversion
    from bson.json_util import JSONMode, JSONOptions

    return JSONOptions(
        json_mode=JSONMode.CANONICAL, document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
    )
