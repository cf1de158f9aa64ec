"""Encode values as a message, and apply the state that an answer reports.

The texts of `marshalling` and `set_order` stand before this text in runners.
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
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.marshalling import (
        MAX_DEPTH,
        NUMPY_KINDS,
        SCALARS,
        SHARED_TYPES,
        WIDE_DTYPES,
        Message,
        NotPlainError,
        ProxyProtocol,
        fields_of,
        set_fields,
    )
    from autoclave.judge.runners.set_order import fill_set, table_size

_LARGE_INT_BITS = 4096  # beyond this an integer travels as hexadecimal: decimal digits take quadratic time
_SMALL = frozenset((type(None), bool, str))
_NAMES_OF_TYPES = {kind: name for name, kind in SHARED_TYPES.items()}
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Encoder(Message):
    """Writes one message. `containers` and `structures` hold its mutable objects in the order of their numbers."""

    def __init__(self, protocol: "ProxyProtocol", known: "Message | None" = None) -> None:
        """`known` is the request that this message answers, if the answer may refer to objects of the request."""
        self.containers: list[Any] = []
        self.structures: list[Any] = []
        self._protocol = protocol
        self._names = protocol.names_of_classes
        self._references: dict[int, Any] = {}
        if known:
            self._references = {id(value): {"theirs": i} for i, value in enumerate(known.containers)}
            self._references |= {id(value): {"their": i} for i, value in enumerate(known.structures)}

    def message(self, head: "list[Any]", values: "Iterable[Any]" = (), states_of: "Message | None" = None) -> bytes:
        """Return the message with these values, followed by the states of the mutable objects of `states_of`.

        Raises NotPlainError: a value or part of one cannot be marshalled.
        """
        try:
            body = [self.value(value, 0) for value in values]
            if states_of:
                body += map(self._state, states_of.containers)
                body += [{"fields": self._fields(structure)} for structure in states_of.structures]
            written: list[Any] = []
            while len(written) < len(self.structures):  # writing the fields of one may add more
                structure = self.structures[len(written)]
                written.append([self._name_of_class(type(structure)), self._fields(structure)])
            return _to_json([head, body, written]).encode("ascii")
        except RecursionError:
            raise NotPlainError("nested too deep") from None

    def value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _SMALL:
            return value
        if kind is int:
            return value if value.bit_length() <= _LARGE_INT_BITS else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if depth > MAX_DEPTH:
            raise NotPlainError("nested too deep")
        if kind not in _ENCODERS:
            return self._of_other_type(value, depth)
        if kind not in _MUTABLE:
            return _ENCODERS[kind](self, value, depth + 1)
        return self._referred(value) or _ENCODERS[kind](self, value, depth + 1)

    def parts(self, values: "Iterable[Any]", depth: int) -> "list[Any]":
        content = list(values)
        return content if _is_plain_json(content) else [self.value(part, depth) for part in content]

    def apply_states(self, states: "list[Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
        """Set the mutable objects of this message to the states that the answer reports.

        Raises NotPlainError: the states do not have the types of the objects.
        """
        if len(states) != len(self.containers) + len(self.structures):
            raise NotPlainError("malformed data")
        for container, state in zip(self.containers, states, strict=False):
            _apply_state(container, state)
        for structure, state in zip(self.structures, states[len(self.containers) :], strict=True):
            _apply_fields(structure, state, own_fields)

    def _state(self, container: Any) -> Any:
        """Return the current content of a container, not a reference to it."""
        self.containers.append(container)
        base = next((base for base in type(container).__mro__ if base in _MUTABLE), None)
        return _ENCODERS[base](self, container, 1) if base else _numpy_content(container)

    def _fields(self, structure: Any) -> "dict[str, Any]":
        return {field: self.value(value, 1) for field, value in fields_of(structure)}

    def _referred(self, value: Any) -> Any:
        """Return the content that refers to `value` if it has a number; else give it one and return None."""
        reference = self._references.get(id(value))
        if reference is None:
            self._references[id(value)] = {"again": len(self.containers)}
            self.containers.append(value)
        return reference

    def _of_other_type(self, value: Any, depth: int) -> Any:
        if self._name_of_class(type(value)) is not None:
            return self._structure(value, depth)
        if issubclass(type(value), type):
            return self._class(value, depth)
        array = _numpy_content(value)
        if array:
            return (self._referred(value) or array) if "array" in array else array
        for base in type(value).__mro__:
            if base in _MUTABLE:
                return self._referred(value) or _ENCODERS[base](self, value, depth + 1)
            if base in _ENCODERS:
                return _ENCODERS[base](self, value, depth + 1)
        return self._protocol.exported(value, self, depth)

    def _class(self, value: Any, depth: int) -> Any:
        if value in self._names:
            return {"class": self._names[value]}
        if value in _NAMES_OF_TYPES:
            return {"type": _NAMES_OF_TYPES[value]}
        return self._protocol.exported(value, self, depth)

    def _structure(self, value: Any, depth: int) -> Any:
        name = self._name_of_class(type(value))
        if isinstance(value, enum.Enum):
            return {"member": [name, value.value if isinstance(value, enum.Flag) else value.name]}
        if isinstance(value, tuple):
            return {"record": [name, self.parts(tuple.__iter__(value), depth + 1)]}
        reference = self._references.get(id(value))
        if reference is None:
            reference = self._references[id(value)] = {"object": len(self.structures)}
            self.structures.append(value)
        return reference

    def _name_of_class(self, kind: type) -> "str | None":
        """Return the name of the class or its nearest known base; None for exceptions, which `Peer` marshals."""
        if not self._names or issubclass(kind, BaseException):
            return None
        if kind in self._names:
            return self._names[kind]
        return next((self._names[base] for base in kind.__mro__ if base in self._names), None)


def _is_plain_json(content: "list[Any]") -> bool:
    """Return whether all members are JSON as they are. Makes few passes, since lists can be long."""
    kinds = set(map(type, content))
    if kinds == {int}:
        return max(map(int.bit_length, content)) <= _LARGE_INT_BITS
    if kinds == {float}:
        return all(map(math.isfinite, content))
    return kinds <= _SMALL or (
        kinds <= SCALARS
        and all(math.isfinite(part) for part in content if type(part) is float)
        and all(part.bit_length() <= _LARGE_INT_BITS for part in content if type(part) is int)
    )


def _pairs(value: Any) -> "list[Any]":
    """Return keys and values in turn."""
    items: Any = dict.items
    return [part for pair in items(value) for part in pair]


def _encode_default_dict(encoder: Encoder, value: Any, depth: int) -> Any:
    return {"defaultdict": [encoder.value(value.default_factory, depth), encoder.parts(_pairs(value), depth)]}


def _encode_deque(encoder: Encoder, value: Any, depth: int) -> Any:
    return {"deque": [value.maxlen, encoder.parts(collections.deque.__iter__(value), depth)]}


def _encode_time_zone(value: Any) -> "float | None":
    if value is None:
        return None
    if type(value) is not datetime.timezone:
        raise NotPlainError(type(value).__name__)
    return value.utcoffset(None).total_seconds()


def _encode_date_time(_encoder: Encoder, value: Any, _depth: int) -> Any:
    parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return {"datetime": [*parts, _encode_time_zone(value.tzinfo), value.fold]}


def _encode_time(_encoder: Encoder, value: Any, _depth: int) -> Any:
    parts = [value.hour, value.minute, value.second, value.microsecond]
    return {"time": [*parts, _encode_time_zone(value.tzinfo), value.fold]}


def _numpy_content(value: Any) -> Any:
    """Return dtype, shape and bytes of an array or a scalar of numpy; None for other values."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(value), (numpy.ndarray, numpy.generic)):
        return None
    array = numpy.asarray(value)
    if array.dtype.kind not in NUMPY_KINDS or array.dtype.fields:
        raise NotPlainError(f"array of {array.dtype}")
    if array.dtype in (numpy.longdouble, numpy.clongdouble) and array.dtype.itemsize > 8:
        longer, array = array, array.astype(WIDE_DTYPES[array.dtype.kind])
        if not numpy.array_equal(longer, array, equal_nan=True):
            raise NotPlainError(f"array of {longer.dtype}")
    content = base64.b64encode(array.tobytes()).decode("ascii")
    if issubclass(type(value), numpy.ndarray):
        return {"array": [array.dtype.str, list(array.shape), content]}
    return {"scalar": [array.dtype.str, content]}


def _encode_set(encoder: Encoder, value: Any, depth: int) -> Any:
    """Return the members in their order, with the table size where adding them one by one gives another order."""
    kind: Any = next(base for base in type(value).__mro__ if base in (set, frozenset))
    order = list(kind.__iter__(value))
    content, size = encoder.parts(order, depth), table_size(value)
    added = kind(order)
    if table_size(added) == size and all(map(operator.is_, added, order)):
        return {kind.__name__: content}
    return {f"{kind.__name__} table": [size, content]}


def _tagged(name: str, parts: "Callable[[Any], Iterable[Any]]") -> "Callable[[Encoder, Any, int], Any]":
    return lambda encoder, value, depth: {name: encoder.parts(parts(value), depth)}


def _text(name: str, text: "Callable[[Any], str]") -> "Callable[[Encoder, Any, int], Any]":
    return lambda encoder, value, depth: {name: text(value)}


def _encode_int(_encoder: Encoder, value: Any, _depth: int) -> Any:
    number = int.__index__(value)
    return number if number.bit_length() <= _LARGE_INT_BITS else {"int": hex(number)}


def _encode_float(_encoder: Encoder, value: Any, _depth: int) -> Any:
    number = float.__float__(value)
    return number if math.isfinite(number) else {"float": float.__repr__(number)}


# Calls the methods of the builtin types, so that a subclass does not decide what it contains.
_ENCODERS: "dict[Any, Callable[[Encoder, Any, int], Any]]" = {
    int: _encode_int,
    float: _encode_float,
    str: lambda encoder, value, depth: str.__str__(value),
    list: lambda encoder, value, depth: encoder.parts(list.__iter__(value), depth),
    tuple: _tagged("tuple", tuple.__iter__),
    dict: _tagged("dict", _pairs),
    set: _encode_set,
    frozenset: _encode_set,
    bytes: _text("bytes", lambda value: base64.b64encode(bytes.__getitem__(value, slice(None))).decode("ascii")),
    bytearray: _text("bytearray", lambda value: base64.b64encode(value).decode("ascii")),
    complex: _tagged("complex", lambda value: (value.real, value.imag)),
    range: _tagged("range", lambda value: (value.start, value.stop, value.step)),
    slice: _tagged("slice", lambda value: (value.start, value.stop, value.step)),
    type(...): _tagged("ellipsis", lambda value: ()),
    collections.Counter: _tagged("Counter", _pairs),
    collections.OrderedDict: _tagged("OrderedDict", _pairs),
    collections.defaultdict: _encode_default_dict,
    collections.deque: _encode_deque,
    type({}.keys()): _tagged("keys", iter),
    type({}.values()): _tagged("values", iter),
    type({}.items()): _tagged("items", iter),
    type(collections.OrderedDict().keys()): _tagged("ordered keys", iter),
    type(collections.OrderedDict().values()): _tagged("ordered values", iter),
    type(collections.OrderedDict().items()): _tagged("ordered items", iter),
    fractions.Fraction: _tagged("Fraction", lambda value: (value.numerator, value.denominator)),
    decimal.Decimal: _text("Decimal", decimal.Decimal.__str__),
    datetime.date: _tagged("date", lambda value: (value.year, value.month, value.day)),
    datetime.datetime: _encode_date_time,
    datetime.time: _encode_time,
    datetime.timedelta: _tagged("timedelta", lambda value: (value.days, value.seconds, value.microseconds)),
}
_MUTABLE = frozenset(
    (list, dict, set, bytearray, collections.Counter, collections.OrderedDict, collections.defaultdict)
) | {collections.deque}


def _apply_fields(structure: Any, fields: "dict[str, Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
    """Set the fields of `structure` and delete its other fields."""
    for name, _ in fields_of(structure):
        if name not in fields:
            object.__delattr__(structure, name)
    set_fields(structure, fields, own_fields)


def _apply_state(container: Any, state: Any) -> None:
    """Replace the content of `container` by that of `state`, which has the same type."""
    for kind, replace in _REPLACERS.items():
        if isinstance(container, kind) and isinstance(state, kind):
            replace(container, state)
            return
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(container, numpy.ndarray) or numpy.shape(state) != container.shape:
        raise NotPlainError("malformed data")
    numpy.copyto(container, state, casting="same_kind")


def _replace_slice(container: Any, state: Any) -> None:
    container[:] = state


def _replace_all(container: Any, state: Any) -> None:
    container.clear()
    container.update(state)


def _replace_members(container: Any, state: Any) -> None:
    container.clear()
    fill_set(container, list(state), table_size(state))


def _replace_in_order(container: Any, state: Any) -> None:
    container.clear()
    container.extend(state)


_REPLACERS: "dict[type, Callable[[Any, Any], None]]" = {
    list: _replace_slice,
    bytearray: _replace_slice,
    dict: _replace_all,
    set: _replace_members,
    collections.deque: _replace_in_order,
}
