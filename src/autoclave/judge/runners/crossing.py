"""Values as they cross between the cell of a check and the cell of a program: JSON with tags, in both directions.

A message is `[head, body, structures]`: what is asked, the values that go with it, and the objects of known classes
that the values refer to. None, bool, int, float, text and lists are JSON as it is; everything else is an object with
one key, its kind. Reading runs nothing of the other side: it makes builtin values, numbers and dates of the standard
library, arrays, and objects of classes that this side has itself, by `object.__new__` and their fields.

Identity is kept: a container, array or object that occurs twice in a message is one object on the far side, cycles
included. Order is kept: sets iterate on the far side as they did here.
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
import functools
import itertools
import json
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_MISSING = object()
_WIDE = {"i": "int64", "u": "int64", "f": "float64", "c": "complex128"}
_SMALLEST_TABLE, _LARGEST_TABLE = 8, 1 << 20
_NUM_LINEAR_PROBES = 9
_MAX_PROBES, _MAX_SEARCHED, _MAX_PERMUTED = 40, 2048, 5
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
    """State that this side has of the other."""

    classes: "dict[str, type]"
    """The classes whose objects cross as their fields, by name."""

    names_of_classes: "dict[type, str]"
    """The same from the other end; here two classes may have one name."""

    def exported(self, value: Any, writer: "Writer", depth: int) -> Any:
        """Encode a value of any other type; raises NotPlainError when it must stay here."""
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

    def put(self, states: "list[Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
        """Make what went with this message hold what the answer says it holds now.

        Raises:
            NotPlainError: the states are not of the types of what went.
        """
        if len(states) != len(self.containers) + len(self.structures):
            raise NotPlainError("malformed data")
        for container, state in zip(self.containers, states, strict=False):
            _put_state(container, state)
        for structure, state in zip(self.structures, states[len(self.containers) :], strict=True):
            _put_fields(structure, state, own_fields)

    def _state(self, container: Any) -> Any:
        """Copy the current content of a container, not a reference to it."""
        self.containers.append(container)
        base = next((base for base in type(container).__mro__ if base in _MUTABLE), None)
        return _WRITERS[base](self, container, 1) if base else _numpy_content(container)

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
            return (self._referred(value) or array) if "array" in array else array
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
            return {"member": [name, value.value if isinstance(value, enum.Flag) else value.name]}
        if isinstance(value, tuple):
            return {"record": [name, self.parts(tuple.__iter__(value), depth + 1)]}
        reference = self._references.get(id(value))
        if reference is None:
            reference = self._references[id(value)] = {"object": len(self.structures)}
            self.structures.append(value)
        return reference

    def _name_of_class(self, kind: type) -> "str | None":
        """Of the class or its nearest known base; None for exceptions, which cross when they are raised."""
        if not self._names or issubclass(kind, BaseException):
            return None
        if kind in self._names:
            return self._names[kind]
        return next((self._names[base] for base in kind.__mro__ if base in self._names), None)


def _is_as_it_is(content: "list[Any]") -> bool:
    """Return whether JSON has all the members as they are; in few passes, since such lists can be long."""
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
    return [
        (name, value) for name, value in found.items() if not (name.startswith("__") or _is_cached(structure, name))
    ]


def _is_cached(structure: Any, name: str) -> bool:
    return isinstance(_class_attribute(type(structure), name), functools.cached_property)


def _class_attribute(kind: type, name: str) -> Any:
    """Return what the class or its nearest base has under that name, or else `_MISSING`."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


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
    """An array or a scalar of numpy as its type, shape and bytes; None when it is neither."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(value), (numpy.ndarray, numpy.generic)):
        return None
    array = numpy.asarray(value)
    if array.dtype.kind not in _NUMPY_KINDS or array.dtype.fields:
        raise NotPlainError(f"array of {array.dtype}")
    if array.dtype in (numpy.longdouble, numpy.clongdouble) and array.dtype.itemsize > 8:
        longer, array = array, array.astype(_WIDE[array.dtype.kind])
        if not numpy.array_equal(longer, array, equal_nan=True):
            raise NotPlainError(f"array of {longer.dtype}")
    content = base64.b64encode(array.tobytes()).decode("ascii")
    if issubclass(type(value), numpy.ndarray):
        return {"array": [array.dtype.str, list(array.shape), content]}
    return {"scalar": [array.dtype.str, content]}


def _write_set(writer: Writer, value: Any, depth: int) -> Any:
    """The members in their order, and the size of the table where adding them one by one would make another order."""
    kind: Any = next(base for base in type(value).__mro__ if base in (set, frozenset))
    order = list(kind.__iter__(value))
    content, size = writer.parts(order, depth), _table_size(value)
    added = kind(order)
    if _table_size(added) == size and all(map(operator.is_, added, order)):
        return {kind.__name__: content}
    return {f"{kind.__name__} table": [size, content]}


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
    set: _write_set,
    frozenset: _write_set,
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
    type(collections.OrderedDict().keys()): _tagged("ordered keys", iter),
    type(collections.OrderedDict().values()): _tagged("ordered values", iter),
    type(collections.OrderedDict().items()): _tagged("ordered items", iter),
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


# --- The order of sets ---------------------------------------------------------------------------------------------


def _table_size(members: Any) -> int:
    """The number of slots in the table of a set, a power of two."""
    kind: Any = set if isinstance(members, set) else frozenset
    slots = (kind.__sizeof__(members) - kind().__sizeof__()) // 16
    return max(_SMALLEST_TABLE, (1 << slots.bit_length()) >> 1)


def _fill_set(container: "set[Any]", order: "list[Any]", size: int) -> None:
    """Add the members to the empty set so that it iterates in this order, with a table of `size` slots.

    The order of a set is that of the slots, which depend on the size and on what was there when a member was added,
    also on what was removed since. With size 0, or where no such table can be found, they are added one by one.
    """
    for placed, others in _placements(order, size) if size else ():
        if len(placed) * 5 < (size - 1) * 3:
            _fill_table(container, placed, size)
            for member in others:
                container.discard(member)
            if len(container) == len(order) and all(map(operator.is_, container, order)):
                return
            container.clear()
    container.update(order)


def _fill_table(container: "set[Any]", placed: "list[Any]", size: int) -> None:
    """Add the members in turn to the empty set, in a table of `size` slots from the first on.

    A set that a dict is added to gets room for twice as many at once.
    """
    first = dict.fromkeys(placed[: size // 2 - 1]) if size > _SMALLEST_TABLE else {}
    more = [object() for _ in range(max(size // 4, 5) - len(first))] if first else []
    container.update(first | dict.fromkeys(more))
    for member in placed[len(first) :]:
        container.add(member)
    for member in more:
        container.discard(member)


def _placements(order: "list[Any]", size: int, max_attempts: int = 20) -> "Iterator[tuple[list[Any], list[Any]]]":
    """Ways to have the members in slots of this order: what to add in turn, and what of that to remove at last."""
    hashes = [hash(member) for member in order]
    yield from _additions(order, _shortest(hashes, size - 1), size)
    if len(order) > _MAX_SEARCHED:
        return
    paths = [list(itertools.islice(_probes(value, size - 1), _MAX_PROBES)) for value in hashes]
    taken: set[int] = set()
    for attempt in range(min(max_attempts, 1 + 2 * _MAX_SEARCHED // (len(order) + 1))):
        found = _ascending(paths, taken, attempt)
        taken = {path[-1] for path in found}
        yield from _additions(order, found, size)
    if len(order) <= _MAX_PERMUTED:
        yield from ((list(members), []) for members in itertools.permutations(order))


def _shortest(hashes: "list[int]", mask: int) -> "list[list[int]]":
    """The path of each member to the first slot after that of the member before; [] if there is none."""
    paths: list[list[int]] = []
    last = -1
    for value in hashes:
        path = [value & mask]
        if path[0] <= last:
            path = list(itertools.islice(_probes(value, mask), _MAX_PROBES))
            last = next((slot for slot in path if slot > last), mask + 1)
            if last > mask:
                return []
            path = path[: path.index(last) + 1]
        last = path[-1]
        paths.append(path)
    return paths


def _ascending(paths: "list[list[int]]", taken: "set[int]", attempt: int) -> "list[list[int]]":
    """The beginnings of the paths whose ends ascend with the least sum of costs.

    To pass a slot costs least if it was taken in the attempt before: nothing need be added for it.
    """
    steps: list[list[tuple[int, int, int]]] = []  # for each end of a path: the least sum, the end, the step before
    before = [(0, -1, -1)]
    for path in paths:
        found: list[tuple[int, int, int]] = []
        best, position = -1, 0
        costs: dict[int, int] = {}
        cost = 0
        for slot in path:
            costs.setdefault(slot, cost)
            cost += (1 if slot in taken else 16) + (slot * 40503 >> 4 ^ slot * attempt) % (1 + attempt)
        for slot in sorted(costs):
            while position < len(before) and before[position][1] < slot:
                best = position if best < 0 or before[position][0] < before[best][0] else best
                position += 1
            if best >= 0:
                found.append((before[best][0] + costs[slot], slot, best))
        if not found:
            return []
        steps.append(found)
        before = found
    at = before.index(min(before))
    slots: list[int] = []
    for found in reversed(steps):
        slots.append(found[at][1])
        at = found[at][2]
    return [path[: path.index(slot) + 1] for path, slot in zip(paths, reversed(slots), strict=True)]


def _probes(value: int, mask: int) -> "Iterator[int]":
    """The slots where CPython looks for room for a member of this hash value."""
    rest = value & (1 << 64) - 1
    slot = value & mask
    while True:
        yield from range(slot, slot + (_NUM_LINEAR_PROBES if slot + _NUM_LINEAR_PROBES <= mask else 0) + 1)
        rest >>= 5
        slot = (slot * 5 + 1 + rest) & mask


def _additions(order: "list[Any]", paths: "list[list[int]]", size: int) -> "Iterator[tuple[list[Any], list[Any]]]":
    """Each member after what is in the slots before the end of its path: other members, or numbers made for them."""
    number_at = {path[-1]: number for number, path in enumerate(paths)}
    known = set(order)
    placed: list[Any] = []
    others: list[Any] = []
    done: set[int] = set()
    begun: set[int] = set()
    pending = [path[-1] for path in sorted(paths, key=len, reverse=True)]  # those with the shortest paths go first
    while pending:
        slot = pending[-1]
        number = number_at.get(slot)
        missing = [] if number is None else [before for before in paths[number][:-1] if before not in done]
        if missing and slot in begun:
            return  # each of two would have to come before the other
        begun.add(slot)
        pending += missing
        if not missing:
            pending.pop()
            if slot not in done:
                done.add(slot)
                if number is None:
                    others.append(
                        next(value for value in itertools.count(size * size + slot, size) if value not in known)
                    )
                placed.append(others[-1] if number is None else order[number])
    if paths:
        yield placed, others


# --- Reading -------------------------------------------------------------------------------------------------------


class Reader:
    """Reads one message: `head`, `values`, and what can be changed, in the order of the numbers that `Writer` gave."""

    def __init__(
        self,
        border: Border,
        content: bytes,
        answered: "Writer | None" = None,
        own_fields: "Mapping[str, Iterable[str]] | None" = None,
    ) -> None:
        """`answered` is the message that this one answers, when it may refer to the objects that went with it.

        `own_fields` is for a message of a program: by class, the names that its objects may have although the class
        has them too; those under "" all may have. Numbers of numpy are then read as Python's, arrays as wide ones.

        Raises:
            NotPlainError: it is not a message, or too much.
        """
        self.containers: list[Any] = []
        self.structures: list[Any] = []
        self.border = border
        self.answered = answered
        self.own_fields = own_fields
        self._sizes: list[int] = []
        self._size = 0
        try:
            self.head, body, structures = json.loads(content)
            self.structures = [_blank(border.classes[name]) for name, _ in structures]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                set_fields(
                    structure, self._hashable_fields(fields), own_fields
                )  # first: it may be a key that is hashed below
            self.values = [self.value(part, 0) for part in body]
            for structure, (_, fields) in zip(self.structures, structures, strict=True):
                others = {n: self.value(part, 1) for n, part in fields.items() if not _is_without_containers(part)}
                set_fields(structure, others, own_fields)
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
        """The fields that hold scalars and other values without parts, other structures, or tuples of these."""
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
        self.count(len(content) + 1)
        if _SCALARS.issuperset(map(type, content)):
            return content
        return [self.value(part, depth) for part in content]

    def again(self, number: int, _depth: int) -> Any:
        """The container of that number in this message."""
        self.count(self._sizes[number])
        return self.containers[number]

    def count(self, num_parts: int) -> None:
        self._size += num_parts
        if self._size > MAX_PARTS:
            raise NotPlainError("too much data")


def _is_without_containers(content: Any) -> bool:
    """Return whether reading `content` makes nothing that has a number, and hashes nothing, however often it is
    read.
    """
    if type(content) is not dict:
        return type(content) in _SCALARS
    return all(
        tag in _WITHOUT_PARTS
        or (tag == "tuple" and all(map(_is_without_containers, inner)))
        or (tag == "frozenset" and _SCALARS.issuperset(map(type, inner)))
        for tag, inner in content.items()
    )


_WITHOUT_PARTS = frozenset(
    ("object", "float", "int", "member", "bytes", "complex", "range", "ellipsis", "scalar", "type", "class")
) | {"Fraction", "Decimal", "date", "datetime", "time", "timedelta"}


def _blank(kind: type) -> Any:
    if issubclass(kind, (tuple, enum.Enum, BaseException)):
        raise NotPlainError("malformed data")
    return object.__new__(kind)


def set_fields(structure: Any, fields: "dict[str, Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
    """Give `structure` these fields. None may hide a method, a property or a constant of its class."""
    for name, value in fields.items():
        if name.startswith("__") or _is_of_class(type(structure), name, own_fields):
            raise NotPlainError(f"the field {name[:80]!r}, which hides a part of the class {type(structure).__name__}")
        object.__setattr__(structure, name, value)


def _is_of_class(kind: type, name: str, own_fields: "Mapping[str, Iterable[str]] | None") -> bool:
    """Return whether the class defines the name, and not as a field, or as the default of one."""
    found = _class_attribute(kind, name)
    if found is _MISSING or isinstance(found, types.MemberDescriptorType):
        return False
    if callable(found) or hasattr(type(found), "__get__"):
        return True
    owners = ["", *(base.__name__ for base in kind.__mro__)]
    return own_fields is not None and not any(name in own_fields.get(owner, ()) for owner in owners)


def _put_fields(structure: Any, fields: "dict[str, Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
    """Make `structure` have these fields and no others."""
    for name, _ in fields_of(structure):
        if name not in fields:
            object.__delattr__(structure, name)
    set_fields(structure, fields, own_fields)


def _put_state(container: Any, state: Any) -> None:
    """Make `container` hold what `state`, of the same type, holds."""
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
    _fill_set(container, list(state), _table_size(state))


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


def _read_set(reader: Reader, content: Any, depth: int, size: int = 0) -> "set[Any]":
    result: set[Any] = set()

    def fill(parts: "list[Any]") -> None:
        _refuse_collisions(parts)
        _fill_set(result, parts, size)

    return reader.filled(result, content, fill, depth)


def _read_frozenset(reader: Reader, content: Any, depth: int, size: int = 0) -> "frozenset[Any]":
    order = _read_keys(reader, content, depth)
    if not size:
        return frozenset(order)
    room = size // 2 - 1
    for members, others in ((order, []), *_placements(order, size, max_attempts=2)):
        for result in (
            frozenset(dict.fromkeys(members)),
            frozenset(members),
            frozenset(dict.fromkeys(members[:room])).union(members[room:]),
        ):
            if not others and all(map(operator.is_, result, order)):
                return result
    return frozenset(order)


def _read_table(read: "Callable[[Reader, Any, int, int], Any]") -> "Callable[[Reader, Any, int], Any]":
    def read_table(reader: Reader, content: Any, depth: int) -> Any:
        size, parts = content
        if type(size) is not int or size < _SMALLEST_TABLE or size & (size - 1):
            raise NotPlainError("malformed data")
        size = min(size, _LARGEST_TABLE)
        reader.count(size // 8)
        return read(reader, parts, depth, size)

    return read_table


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


def _numbers(reader: Reader, kind: str, data: Any) -> Any:
    """The members of an array. Those of a program are as wide as can be, so that none decides by rounding."""
    numpy: Any = sys.modules["numpy"]
    dtype = numpy.dtype(kind)
    if dtype.kind not in _NUMPY_KINDS or dtype.fields or dtype.subdtype:
        raise NotPlainError("malformed data")
    array = numpy.frombuffer(_bytes(data), dtype)
    if reader.own_fields is None or dtype.kind not in _WIDE:
        return array
    if dtype.kind == "u" and array.size and array.max() >= 1 << 63:
        return array.astype("uint64")
    return array.astype(_WIDE[dtype.kind])


def _read_array(reader: Reader, content: Any, depth: int) -> Any:
    kind, shape, data = content
    array = _numbers(reader, kind, data).reshape(shape).copy()
    return reader.filled(array, [], lambda parts: None, depth)


def _read_scalar(reader: Reader, content: Any, _depth: int) -> Any:
    (number,) = _numbers(reader, *content)
    return number if reader.own_fields is None or number.dtype.kind in "mM" else number.item()


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
    return kind(member) if issubclass(kind, enum.Flag) and type(member) is int else kind[member]


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


_ordered = collections.OrderedDict
_READERS: "dict[str, Callable[[Reader, Any, int], Any]]" = {
    "int": lambda reader, content, depth: int(content, 16),
    "float": _read_float,
    "tuple": lambda reader, content, depth: tuple(reader.parts(content, depth)),
    "dict": _read_mapping(dict),
    "set": _read_set,
    "set table": _read_table(_read_set),
    "frozenset": _read_frozenset,
    "frozenset table": _read_table(_read_frozenset),
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
    "ordered keys": lambda reader, content, depth: _ordered(dict.fromkeys(_read_keys(reader, content, depth))).keys(),
    "ordered values": lambda reader, content, depth: _ordered(enumerate(reader.parts(content, depth))).values(),
    "ordered items": lambda reader, content, depth: _ordered(_read_items(reader, content, depth)).items(),
    "iterator": lambda reader, content, depth: iter(reader.parts(content, depth)),
    "Fraction": _built(fractions.Fraction),
    "Decimal": lambda reader, content, depth: decimal.Decimal(content),
    "date": _built(datetime.date),
    "datetime": _read_time(datetime.datetime),
    "time": _read_time(datetime.time),
    "timedelta": _built(datetime.timedelta),
    "array": _read_array,
    "scalar": _read_scalar,
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
