"""Decode a message into values.

The texts of `marshalling`, `set_order` and `encoder` stand before this text in runners.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import base64
import collections
import datetime
import decimal
import enum
import fractions
import json
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.encoder import Encoder
    from autoclave.judge.runners.marshalling import (
        MAX_DEPTH,
        NUMPY_KINDS,
        SCALARS,
        SHARED_TYPES,
        WIDE_DTYPES,
        Message,
        NotPlainError,
        ProxyProtocol,
        set_fields,
    )
    from autoclave.judge.runners.set_order import SMALLEST_TABLE, fill_set, placements

_MAX_PARTS = 4_000_000  # of all values of a message; a reference counts the parts of its object again
_MAX_COLLISIONS = 64
_LARGEST_TABLE = 1 << 20


class Decoder(Message):
    """Reads one message: `head`, `values`, and the mutable objects in the order of the numbers that `Encoder` gave."""

    def __init__(
        self,
        protocol: "ProxyProtocol",
        content: bytes,
        answered: "Encoder | None" = None,
        own_fields: "Mapping[str, Iterable[str]] | None" = None,
    ) -> None:
        """`answered` is the request that this message answers, if the answer may refer to objects of the request.

        `own_fields` is set for messages of a program. It lists, by class, the fields that objects may have although
        the class defines the name; those under "" hold for all classes. Numbers of numpy are then decoded as Python's
        numbers, arrays as arrays of the widest type.

        Raises NotPlainError: the content is not a message, or exceeds a limit.
        """
        self.containers: list[Any] = []
        self.structures: list[Any] = []
        self.protocol = protocol
        self.answered = answered
        self.own_fields = own_fields
        self._sizes: list[int] = []
        self._size = 0
        try:
            self.head, body, structures = json.loads(content)
            self.structures = [_blank(protocol.classes[name]) for name, _ in structures]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                # These come first, since a structure may be a key that is hashed below.
                early = {name: self.value(part, 1) for name, part in fields.items() if _is_without_containers(part)}
                set_fields(structure, early, own_fields)
            self.values = [self.value(part, 0) for part in body]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                others = {
                    name: self.value(part, 1) for name, part in fields.items() if not _is_without_containers(part)
                }
                set_fields(structure, others, own_fields)
        except NotPlainError:
            raise
        except (MemoryError, RecursionError):
            raise NotPlainError("too much data") from None
        except Exception as error:  # noqa: BLE001  constructors raise anything on malformed data
            raise NotPlainError(f"malformed data ({type(error).__name__})") from None

    def value(self, content: Any, depth: int) -> Any:
        kind = type(content)
        if kind is not list and kind is not dict:
            return content
        if depth > MAX_DEPTH:
            raise NotPlainError("nested too deep")
        if kind is list:
            container: list[Any] = []
            return self.filled(container, content, container.extend, depth + 1)
        ((tag, inner),) = content.items()
        return _DECODERS[tag](self, inner, depth + 1)

    def filled(self, container: Any, content: Any, fill: "Callable[[list[Any]], object]", depth: int) -> Any:
        """Return `container` after `fill`. Its number comes before its parts, which may refer to it."""
        number, before = len(self.containers), self._size
        self.containers.append(container)
        self._sizes.append(1)
        fill(self.parts(content, depth))
        self._sizes[number] += self._size - before
        return container

    def parts(self, content: Any, depth: int) -> "list[Any]":
        if type(content) is not list:
            raise NotPlainError("malformed data")
        self.count(len(content) + 1)
        if SCALARS.issuperset(map(type, content)):
            return content
        return [self.value(part, depth) for part in content]

    def again(self, number: int, _depth: int) -> Any:
        """Return the container of that number in this message."""
        self.count(self._sizes[number])
        return self.containers[number]

    def count(self, num_parts: int) -> None:
        """Raises NotPlainError when the message has too many parts."""
        self._size += num_parts
        if self._size > _MAX_PARTS:
            raise NotPlainError("too much data")


def _is_without_containers(content: Any) -> bool:
    """Return whether decoding `content` gives out no number and hashes no structure, so that it can be repeated."""
    if type(content) is not dict:
        return type(content) in SCALARS
    return all(
        tag in _WITHOUT_PARTS
        or (tag == "tuple" and all(map(_is_without_containers, inner)))
        or (tag == "frozenset" and SCALARS.issuperset(map(type, inner)))
        for tag, inner in content.items()
    )


_WITHOUT_PARTS = frozenset(
    ("object", "float", "int", "member", "bytes", "complex", "range", "ellipsis", "scalar", "type", "class")
) | {"Fraction", "Decimal", "date", "datetime", "time", "timedelta"}


def _blank(kind: type) -> Any:
    if issubclass(kind, (tuple, enum.Enum, BaseException)):
        raise NotPlainError("malformed data")
    return object.__new__(kind)


def _refuse_collisions(keys: "list[Any]") -> None:
    """Refuse many different keys of one hash value, which make building a table take quadratic time."""
    if len(keys) > _MAX_COLLISIONS:
        hashes = sorted(map(hash, keys))
        if any(first == last for first, last in zip(hashes, hashes[_MAX_COLLISIONS:], strict=False)):
            raise NotPlainError("keys made to collide")


def _decode_mapping(kind: "Callable[[], Any]") -> "Callable[[Decoder, Any, int], Any]":
    def decode(decoder: Decoder, content: Any, depth: int) -> Any:
        result = kind()

        def fill(parts: "list[Any]") -> None:
            _refuse_collisions(parts[::2])
            for key, part in zip(parts[::2], parts[1::2], strict=True):  # `update` differs between the kinds
                result[key] = part

        return decoder.filled(result, content, fill, depth)

    return decode


def _decode_set(decoder: Decoder, content: Any, depth: int, size: int = 0) -> "set[Any]":
    result: set[Any] = set()

    def fill(parts: "list[Any]") -> None:
        _refuse_collisions(parts)
        fill_set(result, parts, size)

    return decoder.filled(result, content, fill, depth)


def _decode_frozenset(decoder: Decoder, content: Any, depth: int, size: int = 0) -> "frozenset[Any]":
    order = _decode_keys(decoder, content, depth)
    if not size:
        return frozenset(order)
    room = size // 2 - 1
    for members, others in ((order, []), *placements(order, size, max_attempts=2)):
        for result in (
            frozenset(dict.fromkeys(members)),
            frozenset(members),
            frozenset(dict.fromkeys(members[:room])).union(members[room:]),
        ):
            if not others and all(map(operator.is_, result, order)):
                return result
    return frozenset(order)


def _decode_table(read: "Callable[[Decoder, Any, int, int], Any]") -> "Callable[[Decoder, Any, int], Any]":
    def decode_table(decoder: Decoder, content: Any, depth: int) -> Any:
        size, parts = content
        if type(size) is not int or size < SMALLEST_TABLE or size & (size - 1):
            raise NotPlainError("malformed data")
        size = min(size, _LARGEST_TABLE)
        decoder.count(size // 8)
        return read(decoder, parts, depth, size)

    return decode_table


def _decode_default_dict(decoder: Decoder, content: Any, depth: int) -> Any:
    factory, pairs = content
    result: Any = collections.defaultdict()
    number = len(decoder.containers)
    _decode_mapping(lambda: result)(decoder, pairs, depth)
    assert decoder.containers[number] is result
    result.default_factory = decoder.value(factory, depth)
    return result


def _decode_deque(decoder: Decoder, content: Any, depth: int) -> Any:
    length, parts = content
    result: collections.deque[Any] = collections.deque(maxlen=length)
    return decoder.filled(result, parts, result.extend, depth)


def _decode_bytearray(decoder: Decoder, content: Any, depth: int) -> bytearray:
    result = bytearray(_bytes(content))
    return decoder.filled(result, [], lambda parts: None, depth)


def _bytes(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _decode_float(_decoder: Decoder, content: Any, _depth: int) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise NotPlainError("malformed data")
    return float(content)


def _decode_time_zone(seconds: "float | None") -> "datetime.timezone | None":
    return None if seconds is None else datetime.timezone(datetime.timedelta(seconds=seconds))


def _decode_time(kind: Any) -> "Callable[[Decoder, Any, int], Any]":
    def decode(_decoder: Decoder, content: Any, _depth: int) -> Any:
        *parts, seconds, fold = content
        return kind(*parts, tzinfo=_decode_time_zone(seconds), fold=fold)

    return decode


def _numbers(decoder: Decoder, kind: str, data: Any) -> Any:
    """Return the members of an array; those of a program in the widest type, so that rounding decides no check."""
    numpy: Any = sys.modules["numpy"]
    dtype = numpy.dtype(kind)
    if dtype.kind not in NUMPY_KINDS or dtype.fields or dtype.subdtype:
        raise NotPlainError("malformed data")
    array = numpy.frombuffer(_bytes(data), dtype)
    if decoder.own_fields is None or dtype.kind not in WIDE_DTYPES:
        return array
    if dtype.kind == "u" and array.size and array.max() >= 1 << 63:
        return array.astype("uint64")
    return array.astype(WIDE_DTYPES[dtype.kind])


def _decode_array(decoder: Decoder, content: Any, depth: int) -> Any:
    kind, shape, data = content
    array = _numbers(decoder, kind, data).reshape(shape).copy()
    return decoder.filled(array, [], lambda parts: None, depth)


def _decode_scalar(decoder: Decoder, content: Any, _depth: int) -> Any:
    (number,) = _numbers(decoder, *content)
    return number if decoder.own_fields is None or number.dtype.kind in "mM" else number.item()


def _decode_record(decoder: Decoder, content: Any, depth: int) -> Any:
    name, parts = content
    kind = decoder.protocol.classes[name]
    values = decoder.parts(parts, depth)
    if not issubclass(kind, tuple) or len(values) != len(getattr(kind, "_fields", values)):
        raise NotPlainError("malformed data")
    return tuple.__new__(kind, values)


def _decode_member(decoder: Decoder, content: Any, _depth: int) -> Any:
    name, member = content
    kind = decoder.protocol.classes[name]
    if not issubclass(kind, enum.Enum):
        raise NotPlainError("malformed data")
    return kind(member) if issubclass(kind, enum.Flag) and type(member) is int else kind[member]


def _decode_keys(decoder: Decoder, content: Any, depth: int) -> "list[Any]":
    parts = decoder.parts(content, depth)
    _refuse_collisions(parts)
    return parts


def _decode_items(decoder: Decoder, content: Any, depth: int) -> "dict[Any, Any]":
    parts = decoder.parts(content, depth)
    _refuse_collisions([key for key, _ in parts])
    return dict(parts)


def _built(make: "Callable[..., Any]") -> "Callable[[Decoder, Any, int], Any]":
    return lambda decoder, content, depth: make(*decoder.parts(content, depth))


def _answered(decoder: Decoder) -> Encoder:
    if decoder.answered is None:
        raise NotPlainError("malformed data")
    return decoder.answered


_ordered = collections.OrderedDict


_DECODERS: "dict[str, Callable[[Decoder, Any, int], Any]]" = {
    "int": lambda decoder, content, depth: int(content, 16),
    "float": _decode_float,
    "tuple": lambda decoder, content, depth: tuple(decoder.parts(content, depth)),
    "dict": _decode_mapping(dict),
    "set": _decode_set,
    "set table": _decode_table(_decode_set),
    "frozenset": _decode_frozenset,
    "frozenset table": _decode_table(_decode_frozenset),
    "bytes": lambda decoder, content, depth: _bytes(content),
    "bytearray": _decode_bytearray,
    "complex": _built(complex),
    "range": _built(range),
    "slice": _built(slice),
    "ellipsis": lambda decoder, content, depth: ...,
    "Counter": _decode_mapping(collections.Counter),
    "OrderedDict": _decode_mapping(collections.OrderedDict),
    "defaultdict": _decode_default_dict,
    "deque": _decode_deque,
    "keys": lambda decoder, content, depth: dict.fromkeys(_decode_keys(decoder, content, depth)).keys(),
    "values": lambda decoder, content, depth: dict(enumerate(decoder.parts(content, depth))).values(),
    "items": lambda decoder, content, depth: _decode_items(decoder, content, depth).items(),
    "ordered keys": lambda decoder, content, depth: _ordered(
        dict.fromkeys(_decode_keys(decoder, content, depth))
    ).keys(),
    "ordered values": lambda decoder, content, depth: _ordered(enumerate(decoder.parts(content, depth))).values(),
    "ordered items": lambda decoder, content, depth: _ordered(_decode_items(decoder, content, depth)).items(),
    "iterator": lambda decoder, content, depth: iter(decoder.parts(content, depth)),
    "Fraction": _built(fractions.Fraction),
    "Decimal": lambda decoder, content, depth: decimal.Decimal(content),
    "date": _built(datetime.date),
    "datetime": _decode_time(datetime.datetime),
    "time": _decode_time(datetime.time),
    "timedelta": _built(datetime.timedelta),
    "array": _decode_array,
    "scalar": _decode_scalar,
    "type": lambda decoder, content, depth: SHARED_TYPES[content],
    "class": lambda decoder, content, depth: decoder.protocol.classes[content],
    "record": _decode_record,
    "member": _decode_member,
    "fields": lambda decoder, content, depth: {name: decoder.value(part, depth) for name, part in content.items()},
    "object": lambda decoder, content, depth: decoder.structures[content],
    "again": Decoder.again,
    "theirs": lambda decoder, content, depth: _answered(decoder).containers[content],
    "their": lambda decoder, content, depth: _answered(decoder).structures[content],
    "handle": lambda decoder, content, depth: decoder.protocol.imported(content),
}
