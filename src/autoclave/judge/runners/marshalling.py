"""Object marshalling between the cell of a check and the cell of a program: what both directions share.

A message is the JSON list `[head, body, structures]`: the request or the kind of answer, the values that go with it,
and the fields of the objects of known classes that the values refer to. None, bool, int, float, text and lists are JSON
as it is; every other value is an object with one key, its tag. `Encoder` (`encoder.py`) writes messages, `Decoder`
(`decoder.py`) reads them. Decoding runs no code of the other side: it makes builtin values, numbers and dates of the
standard library, arrays, and objects of classes that this side has itself, by `object.__new__` and their fields.

Identity is kept: a container, array or object that occurs twice in a message is one object on the far side, cycles
included. Order is kept: sets iterate on the far side as they did here (`set_order.py`). A value that has no tag goes to
the `ProxyProtocol`, which may give it a number.

These four modules use the standard library only. Their text goes into runners in the order `marshalling`, `set_order`,
`encoder`, `decoder`; they import each other for type checkers only, in this order too.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import builtins
import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

MAX_DEPTH = 200
SCALARS = frozenset((type(None), bool, str, int, float))
NUMPY_KINDS = "biufcSUmM"
WIDE_DTYPES = {"i": "int64", "u": "int64", "f": "float64", "c": "complex128"}
SHARED_TYPES: "dict[str, type]" = {
    kind.__name__: kind
    for kind in (
        *(object, bool, int, float, complex, str, bytes, bytearray),
        *(list, tuple, dict, set, frozenset, range, type(None)),
        *(kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    )
}
"""Types that may cross themselves, by name."""
_MISSING = object()


class NotPlainError(ValueError):
    """A value cannot be marshalled, or a message is not one that `Encoder` writes."""


class Message:
    """The mutable objects of a message, in the order of their numbers."""

    containers: "list[Any]"
    structures: "list[Any]"


class PartEncoder(Protocol):
    """The part of an `Encoder` that `ProxyProtocol.exported` uses."""

    def parts(self, values: "Iterable[Any]", depth: int) -> "list[Any]": ...


class ProxyProtocol(Protocol):
    """The state that marshalling needs of one side of the conversation."""

    classes: "dict[str, type]"
    """The classes whose objects are marshalled as their fields, by name."""

    names_of_classes: "dict[type, str]"
    """The names of these classes; two classes may have the same name."""

    def exported(self, value: Any, encoder: "PartEncoder", depth: int) -> Any:
        """Return the content that stands for a value of any other type.

        Raises NotPlainError: the value must not leave this side.
        """
        ...

    def imported(self, content: Any) -> Any:
        """Return the value that content made by `exported` stands for."""
        ...


def fields_of(structure: Any) -> "Iterable[tuple[str, Any]]":
    """Return names and values of all slots and attributes, without cached properties and names with leading `__`."""
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
    """Return the attribute of the class or its nearest base, or `_MISSING`."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


def set_fields(structure: Any, fields: "dict[str, Any]", own_fields: "Mapping[str, Iterable[str]] | None") -> None:
    """Give `structure` these fields.

    Raises NotPlainError: a field would hide a method, a property or a constant of the class.
    """
    for name, value in fields.items():
        if name.startswith("__") or _is_of_class(type(structure), name, own_fields):
            raise NotPlainError(f"the field {name[:80]!r}, which hides a part of the class {type(structure).__name__}")
        object.__setattr__(structure, name, value)


def _is_of_class(kind: type, name: str, own_fields: "Mapping[str, Iterable[str]] | None") -> bool:
    """Return whether the class defines the name as anything else than a field or the default of a field."""
    found = _class_attribute(kind, name)
    if found is _MISSING or isinstance(found, types.MemberDescriptorType):
        return False
    if callable(found) or hasattr(type(found), "__get__"):
        return True
    owners = ["", *(base.__name__ for base in kind.__mro__)]
    return own_fields is not None and not any(name in own_fields.get(owner, ()) for owner in owners)
