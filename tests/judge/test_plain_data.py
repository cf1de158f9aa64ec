"""The codec at the border: what goes in comes out with its type, and nothing else comes out."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.plain_data import MAX_DEPTH, NotPlainError, decode, encode

hashable = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=5,
)
values = st.recursive(
    st.one_of(hashable, st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner),
        st.dictionaries(hashable, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$", "v", "a", ""]), inner, max_size=4),
        st.sets(hashable, max_size=4),
    ),
    max_leaves=10,
)


def typed(value: Any) -> Any:
    """`value` with its types spelled out, so that 1, 1.0 and True differ."""
    if isinstance(value, (list, tuple)):
        return type(value), [typed(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(typed(part)) for part in value)
    if isinstance(value, dict):
        return dict, [(typed(key), typed(part)) for key, part in value.items()]
    return type(value), repr(value)


@given(values)
def test_plain_values_come_back_with_their_types(value: Any):
    assert typed(decode(encode(value))) == typed(value)


@pytest.mark.parametrize("value", [-(2**70), math.inf, -math.inf, -0.0, bytearray(b"x"), "\ud800", 10**400])
def test_rare_values_come_back(value: Any):
    assert typed(decode(encode(value))) == typed(value)


def test_integers_beyond_the_digit_limit_of_python_come_back():
    assert decode(encode([10**5000, -(10**5000)])) == [10**5000, -(10**5000)]


def test_nan_comes_back_as_nan():
    assert math.isnan(decode(encode(float("nan"))))


class Liar(list):
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self):
        return iter([42])

    def __len__(self):
        return 1

    __hash__ = None


class Rank(IntEnum):
    FIRST = 1


def test_a_subclass_travels_as_what_it_holds_not_as_what_it_claims():
    assert typed(decode(encode(Liar([1, 2])))) == typed([1, 2])
    assert typed(decode(encode(Rank.FIRST))) == typed(1)
    assert typed(decode(encode(defaultdict(int, a=1)))) == typed({"a": 1})
    assert typed(decode(encode(Counter("a")))) == typed({"a": 1})
    assert typed(decode(encode(OrderedDict(a=1)))) == typed({"a": 1})
    assert typed(decode(encode(namedtuple("Point", "x y")(1, 2)))) == typed((1, 2))


@pytest.mark.parametrize(("value", "number"), [(Fraction(3), 3), (Fraction(1, 2), 0.5), (Decimal("1.0"), 1)])
def test_an_exact_number_travels_as_the_builtin_number_it_equals(value: Any, number: float):
    assert typed(decode(encode(value))) == typed(number)


@pytest.mark.parametrize("value", [object(), len, iter([]), range(3), Fraction(1, 3), Decimal("0.1"), {}.keys(), int])
def test_other_values_are_refused_by_type(value: Any):
    with pytest.raises(NotPlainError):
        encode([value])


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_capped_on_both_sides():
    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(NotPlainError):
        encode(nested(MAX_DEPTH + 1))
    with pytest.raises(NotPlainError):
        decode(b"[" * (MAX_DEPTH + 5) + b"]" * (MAX_DEPTH + 5))
    with pytest.raises(NotPlainError):
        decode(b"[" * 100_000)


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlainError):
        encode(loop)


@given(st.one_of(st.binary(max_size=60), values.map(lambda value: json.dumps(repr(value)).encode())))
def test_hostile_bytes_give_a_builtin_value_or_are_refused(content: bytes):
    try:
        value = decode(content)
    except NotPlainError:
        return
    assert type(value).__module__ == "builtins"


KINDS = ["int", "float", "tuple", "dict", "set", "frozenset", "bytes", "bytearray", "complex", "code", None, [], 3]
anything = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.builds(lambda kind, content: {"$": kind, "v": content}, st.sampled_from(KINDS), inner),
    ),
    max_leaves=8,
)


@given(anything)
def test_misused_tags_give_a_builtin_value_or_are_refused(document: Any):
    try:
        value = decode(json.dumps(document).encode())
    except NotPlainError:
        return
    assert type(value).__module__ == "builtins"


def test_a_tag_is_one_however_it_is_spelled():
    assert decode(b'{"\\u0024":"set","v":[1]}') == decode(b'{"$":"set","v":[1]}') == {1}


def test_keys_made_to_collide_do_not_make_us_slow():
    modulus = 2**61 - 1  # integers are hashed modulo this prime
    document = {"$": "set", "v": [1 + modulus * number for number in range(50_000)]}
    with pytest.raises(NotPlainError, match="collide"):
        decode(json.dumps(document).encode())
