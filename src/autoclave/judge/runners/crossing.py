"""Values as they cross between the cell of a check and the cell of a program: JSON with tags, in both directions.

A message is `[head, body, structures]`: what is asked, the values that go with it, and the objects of known classes
that the values refer to. None, bool, int, float, text and lists are JSON as it is; everything else is an object with
one key, its kind. Reading runs nothing of the other side: it makes builtin values, numbers and dates of the standard
library, arrays, and objects of classes that this side has itself, by `object.__new__` and their fields.

Identity is kept: a container or object that occurs twice in a message is one object on the far side, cycles included.
What has no form here is handed to `Border.exported`, which may give it a number. Uses the standard library only; its
text goes into runners, no other module imports it.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import base64
import builtins
import collections
import datetime
import decimal
import enum
import fractions
import json
import math
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

MAX_DEPTH = 200
MAX_PARTS = 4_000_000
"""Parts of all values of a message, where what is referred to again counts again."""
_LARGE_INT_BITS = 4096  # beyond this an integer travels as hexadecimal: decimal digits take quadratic time
_MAX_COLLISIONS = 64
_SMALL = frozenset((type(None), bool, str))
_SCALARS = _SMALL | {int, float}
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_NUMPY_KINDS = "biufcSUmM"
_SHARED_TYPES: "dict[str, type]" = {
    kind.__name__: kind
    for kind in (
        *(
            object,
            bool,
            int,
            float,
            complex,
            str,
            bytes,
            bytearray,
            list,
            tuple,
            dict,
            set,
            frozenset,
            range,
            type(None),
        ),
        *(kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    )
}
_NAMES_OF_TYPES = {kind: name for name, kind in _SHARED_TYPES.items()}


class NotPlainError(ValueError):
    """A value cannot cross, or what arrived is not what `Writer` writes."""


class Border(Protocol):
    """What this side knows of the other."""

    classes: "dict[str, type]"
    """The classes whose objects cross as their fields, by name."""

    names_of_classes: "dict[type, str]"
    """The same from the other end; here two classes may have one name."""

    def exported(self, value: Any, writer: "Writer", depth: int) -> Any:
        """What stands for a value of any other type; raises NotPlainError when it must stay here."""
        ...

    def imported(self, content: Any) -> Any:
        """The value that such content stands for."""
        ...


# --- Writing -------------------------------------------------------------------------------------------------------


class Writer:
    """Writes one message. `containers` and `structures` are what can be changed, in the order of their numbers."""

    def __init__(self, border: Border, known: "Reader | None" = None) -> None:
        """`known` is the message that this one answers, when it shall refer to the objects that came with it."""
        self.containers: list[Any] = []
        self.structures: list[Any] = []
        self._border = border
        self._names = border.names_of_classes
        self._references: dict[int, Any] = {}
        if known:
            self._references = {id(value): {"theirs": i} for i, value in enumerate(known.containers)}
            self._references |= {id(value): {"their": i} for i, value in enumerate(known.structures)}

    def message(self, head: "list[Any]", values: "Iterable[Any]" = (), states_of: "Reader | None" = None) -> bytes:
        """The message with these values, and after them the state of all that came with the message `states_of`.

        Raises:
            NotPlainError: a value or part of one cannot cross.
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
            return _encode([head, body, written]).encode("ascii")
        except RecursionError:
            raise NotPlainError("nested too deep") from None

    def value(self, value: Any, depth: int) -> Any:
        """The content that stands for `value`."""
        kind = type(value)
        if kind in _SMALL:
            return value
        if kind is int:
            return value if value.bit_length() <= _LARGE_INT_BITS else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if depth > MAX_DEPTH:
            raise NotPlainError("nested too deep")
        if kind not in _WRITERS:
            return self._of_other_type(value, depth)
        if kind not in _MUTABLE:
            return _WRITERS[kind](self, value, depth + 1)
        return self._referred(value) or _WRITERS[kind](self, value, depth + 1)

    def parts(self, values: "Iterable[Any]", depth: int) -> "list[Any]":
        """The contents that stand for `values`."""
        content = list(values)
        return content if _is_as_it_is(content) else [self.value(part, depth) for part in content]

    def put(self, states: "list[Any]") -> None:
        """Make what went with this message hold what the answer says it holds now.

        Raises:
            NotPlainError: the states are not of the types of what went.
        """
        if len(states) != len(self.containers) + len(self.structures):
            raise NotPlainError("malformed data")
        for container, state in zip(self.containers, states, strict=False):
            _put_state(container, state)
        for structure, state in zip(self.structures, states[len(self.containers) :], strict=True):
            _put_fields(structure, state)

    def _state(self, container: Any) -> Any:
        """What a container holds now, not a reference to it."""
        self.containers.append(container)
        base = next(base for base in type(container).__mro__ if base in _MUTABLE)
        return _WRITERS[base](self, container, 1)

    def _fields(self, structure: Any) -> "dict[str, Any]":
        return {field: self.value(value, 1) for field, value in fields_of(structure)}

    def _referred(self, value: Any) -> Any:
        """The content that refers to `value` if it was met before; else None, and it has a number from now on."""
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
            return array
        for base in type(value).__mro__:
            if base in _MUTABLE:
                return self._referred(value) or _WRITERS[base](self, value, depth + 1)
            if base in _WRITERS:
                return _WRITERS[base](self, value, depth + 1)
        return self._border.exported(value, self, depth)

    def _class(self, value: Any, depth: int) -> Any:
        if value in self._names:
            return {"class": self._names[value]}
        if value in _NAMES_OF_TYPES:
            return {"type": _NAMES_OF_TYPES[value]}
        return self._border.exported(value, self, depth)

    def _structure(self, value: Any, depth: int) -> Any:
        name = self._name_of_class(type(value))
        if isinstance(value, enum.Enum):
            return {"member": [name, value.name]}
        if isinstance(value, tuple):
            return {"record": [name, self.parts(tuple.__iter__(value), depth + 1)]}
        reference = self._references.get(id(value))
        if reference is None:
            reference = self._references[id(value)] = {"object": len(self.structures)}
            self.structures.append(value)
        return reference

    def _name_of_class(self, kind: type) -> "str | None":
        """Of the class or its nearest known base."""
        if kind in self._names:
            return self._names[kind]
        return next((self._names[base] for base in kind.__mro__ if base in self._names), None) if self._names else None


def _is_as_it_is(content: "list[Any]") -> bool:
    """Whether JSON has all the members as they are; in few passes, since such lists can be long."""
    kinds = set(map(type, content))
    if kinds == {int}:
        return max(map(int.bit_length, content)) <= _LARGE_INT_BITS
    if kinds == {float}:
        return all(map(math.isfinite, content))
    return kinds <= _SMALL or (
        kinds <= _SCALARS
        and all(math.isfinite(part) for part in content if type(part) is float)
        and all(part.bit_length() <= _LARGE_INT_BITS for part in content if type(part) is int)
    )


def fields_of(structure: Any) -> "Iterable[tuple[str, Any]]":
    found: dict[str, Any] = {}
    for kind in type(structure).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(structure, name):
                found[name] = getattr(structure, name)
    found |= getattr(structure, "__dict__", {})
    return [(name, value) for name, value in found.items() if not name.startswith("__")]


def _write_list(writer: Writer, value: Any, depth: int) -> Any:
    return writer.parts(list.__iter__(value), depth)


def _pairs(value: Any) -> "list[Any]":
    """Keys and values in turn."""
    items: Any = dict.items
    return [part for pair in items(value) for part in pair]


def _write_default_dict(writer: Writer, value: Any, depth: int) -> Any:
    return {"defaultdict": [writer.value(value.default_factory, depth), writer.parts(_pairs(value), depth)]}


def _write_deque(writer: Writer, value: Any, depth: int) -> Any:
    return {"deque": [value.maxlen, writer.parts(collections.deque.__iter__(value), depth)]}


def _write_time_zone(value: Any) -> "float | None":
    if value is None:
        return None
    if type(value) is not datetime.timezone:
        raise NotPlainError(type(value).__name__)
    return value.utcoffset(None).total_seconds()


def _write_date_time(_writer: Writer, value: Any, _depth: int) -> Any:
    parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return {"datetime": [*parts, _write_time_zone(value.tzinfo), value.fold]}


def _write_time(_writer: Writer, value: Any, _depth: int) -> Any:
    parts = [value.hour, value.minute, value.second, value.microsecond]
    return {"time": [*parts, _write_time_zone(value.tzinfo), value.fold]}


def _numpy_content(value: Any) -> Any:
    """An array or a number of numpy as its type, shape and bytes; None when it is neither."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(value), (numpy.ndarray, numpy.generic)):
        return None
    array = numpy.asarray(value)
    if array.dtype.kind not in _NUMPY_KINDS or array.dtype.fields:
        raise NotPlainError(f"array of {array.dtype}")
    content = base64.b64encode(array.tobytes()).decode("ascii")
    is_array = issubclass(type(value), numpy.ndarray)
    return {"array": [array.dtype.str, list(array.shape) if is_array else None, content]}


def _tagged(name: str, parts: "Callable[[Any], Iterable[Any]]") -> "Callable[[Writer, Any, int], Any]":
    return lambda writer, value, depth: {name: writer.parts(parts(value), depth)}


def _text(name: str, text: "Callable[[Any], str]") -> "Callable[[Writer, Any, int], Any]":
    return lambda writer, value, depth: {name: text(value)}


def _write_int(_writer: Writer, value: Any, _depth: int) -> Any:
    number = int.__index__(value)
    return number if number.bit_length() <= _LARGE_INT_BITS else {"int": hex(number)}


def _write_float(_writer: Writer, value: Any, _depth: int) -> Any:
    number = float.__float__(value)
    return number if math.isfinite(number) else {"float": float.__repr__(number)}


# The methods of the builtin types are named, so that a subclass has no say in what it contains.
_WRITERS: "dict[Any, Callable[[Writer, Any, int], Any]]" = {
    int: _write_int,
    float: _write_float,
    str: lambda writer, value, depth: str.__str__(value),
    list: _write_list,
    tuple: _tagged("tuple", tuple.__iter__),
    dict: _tagged("dict", _pairs),
    set: _tagged("set", set.__iter__),
    frozenset: _tagged("frozenset", frozenset.__iter__),
    bytes: _text("bytes", lambda value: base64.b64encode(bytes.__getitem__(value, slice(None))).decode("ascii")),
    bytearray: _text("bytearray", lambda value: base64.b64encode(value).decode("ascii")),
    complex: _tagged("complex", lambda value: (value.real, value.imag)),
    range: _tagged("range", lambda value: (value.start, value.stop, value.step)),
    slice: _tagged("slice", lambda value: (value.start, value.stop, value.step)),
    type(...): _tagged("ellipsis", lambda value: ()),
    collections.Counter: _tagged("Counter", _pairs),
    collections.OrderedDict: _tagged("OrderedDict", _pairs),
    collections.defaultdict: _write_default_dict,
    collections.deque: _write_deque,
    type({}.keys()): _tagged("keys", iter),
    type({}.values()): _tagged("values", iter),
    type({}.items()): _tagged("items", iter),
    fractions.Fraction: _tagged("Fraction", lambda value: (value.numerator, value.denominator)),
    decimal.Decimal: _text("Decimal", decimal.Decimal.__str__),
    datetime.date: _tagged("date", lambda value: (value.year, value.month, value.day)),
    datetime.datetime: _write_date_time,
    datetime.time: _write_time,
    datetime.timedelta: _tagged("timedelta", lambda value: (value.days, value.seconds, value.microseconds)),
}
_MUTABLE = frozenset(
    (list, dict, set, bytearray, collections.Counter, collections.OrderedDict, collections.defaultdict)
) | {collections.deque}


# --- Reading -------------------------------------------------------------------------------------------------------


class Reader:
    """Reads one message: `head`, `values`, and what can be changed, in the order of the numbers that `Writer` gave."""

    def __init__(self, border: Border, content: bytes, answered: "Writer | None" = None) -> None:
        """`answered` is the message that this one answers, when it may refer to the objects that went with it.

        Raises:
            NotPlainError: it is not a message, or too much.
        """
        self.containers: list[Any] = []
        self.structures: list[Any] = []
        self.border = border
        self.answered = answered
        self._sizes: list[int] = []
        self._size = 0
        try:
            self.head, body, structures = json.loads(content)
            self.structures = [_blank(border.classes[name]) for name, _ in structures]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                _set_fields(structure, self._hashable_fields(fields))  # first: it may be a key that is hashed below
            self.values = [self.value(part, 0) for part in body]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                others = {n: self.value(part, 1) for n, part in fields.items() if not _is_without_containers(part)}
                _set_fields(structure, others)
        except NotPlainError:
            raise
        except (MemoryError, RecursionError):
            raise NotPlainError("too much data") from None
        except Exception as error:  # noqa: BLE001  whatever a constructor says of what arrived
            raise NotPlainError(f"malformed data ({type(error).__name__})") from None

    def value(self, content: Any, depth: int) -> Any:
        """The value that `content` stands for."""
        kind = type(content)
        if kind is not list and kind is not dict:
            return content
        if depth > MAX_DEPTH:
            raise NotPlainError("nested too deep")
        if kind is list:
            container: list[Any] = []
            return self.filled(container, content, container.extend, depth + 1)
        ((tag, inner),) = content.items()
        return _READERS[tag](self, inner, depth + 1)

    def _hashable_fields(self, fields: "dict[str, Any]") -> "dict[str, Any]":
        """The fields that hold scalars, other structures, or tuples of these."""
        return {name: self.value(part, 1) for name, part in fields.items() if _is_without_containers(part)}

    def filled(self, container: Any, content: Any, fill: "Callable[[list[Any]], object]", depth: int) -> Any:
        """`container` after `fill`; it has its number before its parts are read, since they may refer to it."""
        number, before = len(self.containers), self._size
        self.containers.append(container)
        self._sizes.append(1)
        fill(self.parts(content, depth))
        self._sizes[number] += self._size - before
        return container

    def parts(self, content: Any, depth: int) -> "list[Any]":
        """The values that the members of the list `content` stand for."""
        if type(content) is not list:
            raise NotPlainError("malformed data")
        self._count(len(content) + 1)
        if _SCALARS.issuperset(map(type, content)):
            return content
        return [self.value(part, depth) for part in content]

    def again(self, number: int, _depth: int) -> Any:
        """The container of that number in this message."""
        self._count(self._sizes[number])
        return self.containers[number]

    def _count(self, num_parts: int) -> None:
        self._size += num_parts
        if self._size > MAX_PARTS:
            raise NotPlainError("too much data")


def _is_without_containers(content: Any) -> bool:
    """Whether reading `content` makes nothing that has a number, however often it is read."""
    if type(content) is not dict:
        return type(content) in _SCALARS
    return all(
        tag in ("object", "float", "int", "member") or (tag == "tuple" and all(map(_is_without_containers, inner)))
        for tag, inner in content.items()
    )


def _blank(kind: type) -> Any:
    if issubclass(kind, (tuple, enum.Enum, BaseException)):
        raise NotPlainError("malformed data")
    return object.__new__(kind)


def _set_fields(structure: Any, fields: "dict[str, Any]") -> None:
    """Give `structure` these fields. None may hide a method or a property of its class."""
    for name, value in fields.items():
        if name.startswith("__") or _is_behaviour(type(structure), name):
            raise NotPlainError("a field that hides a part of its class")
        object.__setattr__(structure, name, value)


def _is_behaviour(kind: type, name: str) -> bool:
    found = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)
    return not isinstance(found, types.MemberDescriptorType) and (callable(found) or hasattr(type(found), "__get__"))


def _put_fields(structure: Any, fields: "dict[str, Any]") -> None:
    """Make `structure` have these fields and no others."""
    for name, _ in fields_of(structure):
        if name not in fields:
            object.__delattr__(structure, name)
    _set_fields(structure, fields)


def _put_state(container: Any, state: Any) -> None:
    """Make `container` hold what `state`, of the same type, holds."""
    for kind, replace in _REPLACERS.items():
        if isinstance(container, kind) and isinstance(state, kind):
            replace(container, state)
            return
    raise NotPlainError("malformed data")


def _replace_slice(container: Any, state: Any) -> None:
    container[:] = state


def _replace_all(container: Any, state: Any) -> None:
    container.clear()
    container.update(state)


def _replace_in_order(container: Any, state: Any) -> None:
    container.clear()
    container.extend(state)


_REPLACERS: "dict[type, Callable[[Any, Any], None]]" = {
    list: _replace_slice,
    bytearray: _replace_slice,
    dict: _replace_all,
    set: _replace_all,
    collections.deque: _replace_in_order,
}


def _refuse_collisions(keys: "list[Any]") -> None:
    """Many different keys of one hash value make building a table take quadratic time."""
    if len(keys) > _MAX_COLLISIONS:
        hashes = sorted(map(hash, keys))
        if any(first == last for first, last in zip(hashes, hashes[_MAX_COLLISIONS:], strict=False)):
            raise NotPlainError("keys made to collide")


def _read_mapping(kind: "Callable[[], Any]") -> "Callable[[Reader, Any, int], Any]":
    def read(reader: Reader, content: Any, depth: int) -> Any:
        result = kind()

        def fill(parts: "list[Any]") -> None:
            _refuse_collisions(parts[::2])
            for key, part in zip(parts[::2], parts[1::2], strict=True):  # `update` differs between the kinds
                result[key] = part

        return reader.filled(result, content, fill, depth)

    return read


def _read_set(reader: Reader, content: Any, depth: int) -> "set[Any]":
    result: set[Any] = set()

    def fill(parts: "list[Any]") -> None:
        _refuse_collisions(parts)
        result.update(parts)

    return reader.filled(result, content, fill, depth)


def _read_frozenset(reader: Reader, content: Any, depth: int) -> "frozenset[Any]":
    return frozenset(_read_keys(reader, content, depth))


def _read_default_dict(reader: Reader, content: Any, depth: int) -> Any:
    factory, pairs = content
    result: Any = collections.defaultdict()
    number = len(reader.containers)
    _read_mapping(lambda: result)(reader, pairs, depth)
    assert reader.containers[number] is result
    result.default_factory = reader.value(factory, depth)
    return result


def _read_deque(reader: Reader, content: Any, depth: int) -> Any:
    length, parts = content
    result: collections.deque[Any] = collections.deque(maxlen=length)
    return reader.filled(result, parts, result.extend, depth)


def _read_bytearray(reader: Reader, content: Any, depth: int) -> bytearray:
    result = bytearray(_bytes(content))
    return reader.filled(result, [], lambda parts: None, depth)


def _bytes(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _read_float(_reader: Reader, content: Any, _depth: int) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise NotPlainError("malformed data")
    return float(content)


def _read_time_zone(seconds: "float | None") -> "datetime.timezone | None":
    return None if seconds is None else datetime.timezone(datetime.timedelta(seconds=seconds))


def _read_time(kind: Any) -> "Callable[[Reader, Any, int], Any]":
    def read(_reader: Reader, content: Any, _depth: int) -> Any:
        *parts, seconds, fold = content
        return kind(*parts, tzinfo=_read_time_zone(seconds), fold=fold)

    return read


def _read_array(_reader: Reader, content: Any, _depth: int) -> Any:
    numpy: Any = sys.modules["numpy"]
    kind, shape, data = content
    dtype = numpy.dtype(kind)
    if dtype.kind not in _NUMPY_KINDS or dtype.fields or dtype.subdtype:
        raise NotPlainError("malformed data")
    array = numpy.frombuffer(_bytes(data), dtype)
    return array[0] if shape is None else array.reshape(shape).copy()


def _read_record(reader: Reader, content: Any, depth: int) -> Any:
    name, parts = content
    kind = reader.border.classes[name]
    values = reader.parts(parts, depth)
    if not issubclass(kind, tuple) or len(values) != len(getattr(kind, "_fields", values)):
        raise NotPlainError("malformed data")
    return tuple.__new__(kind, values)


def _read_member(reader: Reader, content: Any, _depth: int) -> Any:
    name, member = content
    kind = reader.border.classes[name]
    if not issubclass(kind, enum.Enum):
        raise NotPlainError("malformed data")
    return kind[member]


def _read_keys(reader: Reader, content: Any, depth: int) -> "list[Any]":
    parts = reader.parts(content, depth)
    _refuse_collisions(parts)
    return parts


def _read_items(reader: Reader, content: Any, depth: int) -> "dict[Any, Any]":
    parts = reader.parts(content, depth)
    _refuse_collisions([key for key, _ in parts])
    return dict(parts)


def _built(make: "Callable[..., Any]") -> "Callable[[Reader, Any, int], Any]":
    return lambda reader, content, depth: make(*reader.parts(content, depth))


def _answered(reader: Reader) -> Writer:
    if reader.answered is None:
        raise NotPlainError("malformed data")
    return reader.answered


_READERS: "dict[str, Callable[[Reader, Any, int], Any]]" = {
    "int": lambda reader, content, depth: int(content, 16),
    "float": _read_float,
    "tuple": lambda reader, content, depth: tuple(reader.parts(content, depth)),
    "dict": _read_mapping(dict),
    "set": _read_set,
    "frozenset": _read_frozenset,
    "bytes": lambda reader, content, depth: _bytes(content),
    "bytearray": _read_bytearray,
    "complex": _built(complex),
    "range": _built(range),
    "slice": _built(slice),
    "ellipsis": lambda reader, content, depth: ...,
    "Counter": _read_mapping(collections.Counter),
    "OrderedDict": _read_mapping(collections.OrderedDict),
    "defaultdict": _read_default_dict,
    "deque": _read_deque,
    "keys": lambda reader, content, depth: dict.fromkeys(_read_keys(reader, content, depth)).keys(),
    "values": lambda reader, content, depth: dict(enumerate(reader.parts(content, depth))).values(),
    "items": lambda reader, content, depth: _read_items(reader, content, depth).items(),
    "iterator": lambda reader, content, depth: iter(reader.parts(content, depth)),
    "Fraction": _built(fractions.Fraction),
    "Decimal": lambda reader, content, depth: decimal.Decimal(content),
    "date": _built(datetime.date),
    "datetime": _read_time(datetime.datetime),
    "time": _read_time(datetime.time),
    "timedelta": _built(datetime.timedelta),
    "array": _read_array,
    "type": lambda reader, content, depth: _SHARED_TYPES[content],
    "class": lambda reader, content, depth: reader.border.classes[content],
    "record": _read_record,
    "member": _read_member,
    "fields": lambda reader, content, depth: {name: reader.value(part, depth) for name, part in content.items()},
    "object": lambda reader, content, depth: reader.structures[content],
    "again": Reader.again,
    "theirs": lambda reader, content, depth: _answered(reader).containers[content],
    "their": lambda reader, content, depth: _answered(reader).structures[content],
    "handle": lambda reader, content, depth: reader.border.imported(content),
}
