"""Marshalling between two cells: values survive it, and malformed messages are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.profiles import CANDIDATE

_runner: dict[str, Any] = {"__name__": "runner"}
exec(compile(CANDIDATE.source, "<runner>", "exec", dont_inherit=True), _runner)  # the text that a cell gets
Decoder, Encoder, NotPlainError = (_runner[name] for name in ("Decoder", "Encoder", "NotPlainError"))


class Node:
    def __init__(self, val: Any, next: Any = None) -> None:
        self.val = val
        self.next = next

    def method(self) -> int:
        return 1


class Slotted:
    __slots__ = ("val",)


class OnlyData:
    """A protocol for data and objects of two classes."""

    classes: dict[str, type] = {"Node": Node, "Slotted": Slotted}
    names_of_classes: dict[type, str] = {Node: "Node", Slotted: "Slotted"}

    def exported(self, value: Any, encoder: Any, depth: int) -> Any:
        raise NotPlainError(type(value).__name__)

    def imported(self, content: Any) -> Any:
        raise NotPlainError("a handle")


def marshalled(value: Any) -> Any:
    protocol = OnlyData()
    (result,) = Decoder(protocol, Encoder(protocol).message([], [value])).values
    return result


def read(body: Any, structures: Any = ()) -> Any:
    return Decoder(OnlyData(), json.dumps([[], [body], structures]).encode()).values[0]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.recursive(SCALARS, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=5)
VALUES = st.recursive(
    SCALARS,
    lambda parts: st.lists(parts) | st.lists(parts).map(tuple) | st.dictionaries(KEYS, parts),
    max_leaves=20,
)


@given(VALUES)
def test_a_marshalled_value_has_the_same_repr(value: Any):
    assert repr(marshalled(value)) == repr(value)


@given(st.sets(KEYS) | st.frozensets(KEYS))
def test_sets_are_marshalled(value: Any):
    result = marshalled(value)
    assert (result, type(result)) == (value, type(value))


@given(st.lists(st.sampled_from([[], {}, set(), bytearray(), Node(1)]), max_size=9))
def test_marshalling_keeps_identity(values: list[Any]):
    result = marshalled(values)
    assert [[a is b for a in result] for b in result] == [[a is b for a in values] for b in values]


def test_a_long_cycle_of_objects_is_marshalled():
    first = node = Node(0)
    for number in range(1, 5000):
        node.next = node = Node(number)
    node.next = first
    result = marshalled(first)
    for _ in range(5000):
        result = result.next
    assert (result.val, type(result)) == (0, Node)


def test_slots_are_fields():
    slotted = Slotted()
    slotted.val = [1]
    assert marshalled(slotted).val == [1]


@pytest.mark.parametrize("kind", ["int8", "float64", "complex128", "bool", "datetime64[s]", "<U3"])
def test_arrays_are_marshalled_as_data(kind: str):
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((2, 3), kind)
    result = marshalled(array)
    assert (result.dtype, result.shape, result.tolist()) == (array.dtype, array.shape, array.tolist())
    assert type(marshalled(array[0, 0])) is type(array[0, 0])


def test_an_array_of_objects_is_refused():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NotPlainError):
        marshalled(numpy.array([object()]))
    with pytest.raises(NotPlainError):
        read({"array": ["O", [1], "AAAAAAAAAAA="]})


@pytest.mark.parametrize(
    "body",
    [
        {"unknown": 1},
        {},
        {"tuple": [1], "list": [2]},
        {"tuple": 1},
        {"dict": [1]},
        {"dict": [[], 1]},
        {"set": [[]]},
        {"again": 0},
        {"again": "x"},
        {"theirs": 0},
        {"type": "type"},
        {"type": "SystemExit"},
        {"class": "Other"},
        {"object": 0},
        {"record": ["Node", []]},
        {"member": ["Node", "val"]},
        {"handle": ["mine", 0, "function"]},
        {"int": "__import__('os')"},
        {"float": "1"},
        {"bytes": "?"},
        {"Decimal": []},
        {"datetime": [2024, 1]},
        {"range": [1, 2, 0]},
    ],
)
def test_malformed_data_is_refused(body: Any):
    with pytest.raises(NotPlainError):
        read(body)


@pytest.mark.parametrize(
    "fields",
    [{"method": 1}, {"__class__": 1}, {"__dict__": {"dict": []}}, {"__eq__": 1}],
)
def test_a_field_that_would_change_behaviour_is_refused(fields: dict[str, Any]):
    with pytest.raises(NotPlainError, match="hides a part"):
        read({"object": 0}, [["Node", fields]])


def test_data_that_grows_when_it_is_decoded_is_refused():
    body: Any = [1] * 100
    for number in range(40):
        body = [body, {"again": 40 - number}]
    with pytest.raises(NotPlainError, match="too much data"):
        read(body)
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(NotPlainError, match="nested too deep"):
        read(deep)
    with pytest.raises(NotPlainError, match="nested too deep"):
        marshalled(deep)


@pytest.mark.parametrize("kind", ["set", "frozenset", "keys"])
def test_keys_made_to_collide_are_refused(kind: str):
    with pytest.raises(NotPlainError, match="collide"):
        read({kind: [number * (2**61 - 1) for number in range(1, 1000)]})
