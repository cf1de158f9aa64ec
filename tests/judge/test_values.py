"""Rules for returned values: lenient is Python's equality with a tuple at the top as a list, strict minds types."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.plain_data import decode, encode
from autoclave.judge.profiles import value_rules_of
from autoclave.judge.values import matches_value, matches_value_in_any_order, matches_value_with_tolerance
from tests.strategies import plain_values

NAN = float("nan")
HUGE = 10**4000


@pytest.mark.parametrize(
    ("result", "expected"),
    [(1, 1.0), (True, 1), ((1, 2), [1, 2]), ([[1]], [[1]]), ({"a": 1}, {"a": True}), (None, None), ("", "")],
)
def test_values_that_python_calls_equal_match_leniently(result: Any, expected: Any):
    assert matches_value(result, expected, "lenient")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([(1, 2)], [[1, 2]]),
        ({1: 2}, {"1": 2}),
        ({1, 2}, [1, 2]),
        ("1", 1),
        (NAN, NAN),
        ([float("nan")], [float("nan")]),
        (1.0000001, 1),
        (None, False),
        (b"a", "a"),
    ],
)
def test_other_values_do_not_match_leniently(result: Any, expected: Any):
    assert not matches_value(result, expected, "lenient")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (1, 1),
        ([[1.5, None], "a"], [[1.5, None], "a"]),
        ({"a": [True]}, {"a": [True]}),
        (NAN, NAN),
        ([float("nan"), {"a": float("nan")}], [NAN, {"a": NAN}]),
        (-0.0, 0.0),
        (math.inf, math.inf),
        (HUGE, HUGE),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ],
)
def test_the_same_values_of_the_same_types_match_strictly(result: Any, expected: Any):
    assert matches_value(result, expected, "strict")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (1, 1.0),
        (1.0, 1),
        (True, 1),
        (0, False),
        ((1, 2), [1, 2]),
        ([(1, 2)], [[1, 2]]),
        ([1, 2.0], [1, 2]),
        ({"a": 1}, {"a": True}),
        ({1: 2}, {"1": 2}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([1], [1, 1]),
        ({1, 2}, [1, 2]),
        (1 + 0j, 1),
        (b"a", "a"),
        (None, False),
        (math.inf, -math.inf),
    ],
)
def test_values_of_other_types_do_not_match_strictly(result: Any, expected: Any):
    assert not matches_value(result, expected, "strict")


@pytest.mark.parametrize(
    ("result", "expected", "rule"),
    [
        (1.0000001, 1, "lenient"),
        (1, 1.0000001, "strict"),
        ([0.1 + 0.2, {"a": 3.0}], [0.3, {"a": 3}], "strict"),
        ((0.1 + 0.2,), [0.3], "lenient"),
        (10**400, 10**400, "strict"),
        (math.inf, math.inf, "lenient"),
        (True, True, "strict"),
        (["a", None], ["a", None], "strict"),
        (True, 1, "lenient"),
    ],
)
def test_numbers_within_the_tolerance_match_wherever_they_stand(result: Any, expected: Any, rule: Any):
    assert matches_value_with_tolerance(result, expected, rule, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("result", "expected", "rule"),
    [
        (1.00001, 1, "lenient"),
        (NAN, NAN, "strict"),
        (NAN, 1.0, "lenient"),
        (1.0, NAN, "lenient"),
        (math.inf, 1e308, "lenient"),
        (1.0, math.inf, "lenient"),
        (-math.inf, math.inf, "lenient"),
        (10**400, math.inf, "lenient"),
        (10**400, 2 * 10**400, "strict"),
        (10**400, 1.0, "strict"),
        (1.0, 10**400, "strict"),
        (True, 1, "strict"),
        ("1.0", 1, "lenient"),
        ((0.3,), [0.3], "strict"),
        ([(0.3,)], [[0.3]], "lenient"),
        ([1, 2], [1], "lenient"),
        ("a", "b", "lenient"),
        ({"a": 1.0}, {"b": 1.0}, "lenient"),
    ],
)
def test_a_tolerance_excuses_nothing_but_finite_numbers(result: Any, expected: Any, rule: Any):
    assert not matches_value_with_tolerance(result, expected, rule, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("result", "expected", "rule"),
    [
        ([3, 1, 2], [1, 2, 3], "strict"),
        ([[2], [1], [1]], [[1], [2], [1]], "strict"),
        ([{"b": 1, "a": [2]}, {}], [{}, {"a": [2], "b": 1}], "strict"),
        ((2, 1), [1, 2], "lenient"),
        ([True, 2.0], [2, 1], "lenient"),
        ([NAN, 1.0], [1.0, float("nan")], "strict"),
        ([], [], "strict"),
        (7, 7, "strict"),
        ({"a": [1]}, {"a": [1]}, "lenient"),
    ],
)
def test_elements_at_the_top_may_stand_in_any_order(result: Any, expected: Any, rule: Any):
    assert matches_value_in_any_order(result, expected, rule)


@pytest.mark.parametrize(
    ("result", "expected", "rule"),
    [
        ([1, 1, 2], [1, 2, 2], "strict"),
        ([1], [1, 1], "strict"),
        ([[1, 2]], [[2, 1]], "strict"),
        ([1.0], [1], "strict"),
        ([True], [1], "strict"),
        ((1,), [1], "strict"),
        ([(1,)], [[1]], "lenient"),
        ([{1, 2}], [[1, 2]], "lenient"),
        ([{1: 2}], [{"1": 2}], "lenient"),
        ([bytearray(b"a")], ["a"], "lenient"),
        ([NAN], [NAN + 0], "lenient"),
        ({"a": [1, 2]}, {"a": [2, 1]}, "lenient"),
        ({1, 2}, [1, 2], "lenient"),
    ],
)
def test_any_order_excuses_nothing_else(result: Any, expected: Any, rule: Any):
    result = decode(encode(result))  # as it comes from a cell: no part is the very object that is expected
    assert not matches_value_in_any_order(result, expected, rule)


@given(plain_values(), plain_values())
def test_whatever_matches_strictly_matches_by_the_laxer_rules(result: Any, expected: Any):
    rules: list[Callable[[Any, Any], bool]] = [
        lambda a, b: matches_value(a, b, "lenient"),
        lambda a, b: matches_value_with_tolerance(a, b, "strict", rtol=0, atol=0),
        lambda a, b: matches_value_in_any_order(a, b, "strict"),
    ]
    for other in (expected, decode(encode(result))):
        if matches_value(result, other, "strict"):
            assert all(rule(result, other) for rule in rules)


@given(plain_values(), plain_values())
def test_lenient_rules_agree_with_pythons_equality(result: Any, expected: Any):
    assert matches_value(result, expected, "lenient") == (result == expected)
    assert matches_value_with_tolerance(result, expected, "lenient", rtol=0, atol=0) == (result == expected)


@given(st.lists(plain_values(), max_size=5), st.randoms())
def test_a_shuffled_list_matches_in_any_order(values: list[Any], random: Any):
    shuffled = decode(encode(values))
    random.shuffle(shuffled)
    assert matches_value_in_any_order(shuffled, values, "strict")


def seconds(compare: Callable[[], bool]) -> float:
    started = time.process_time()
    compare()
    return time.process_time() - started


def test_hostile_results_take_no_more_than_linear_time():
    modulus = 2**61 - 1  # integers are hashed modulo this prime
    colliding = [1 + modulus * number for number in range(100_000)]
    numbers = list(range(100_000))
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    digits = 10**1_000_000
    for compare in (
        lambda: matches_value_in_any_order(colliding, numbers, "lenient"),
        lambda: matches_value_in_any_order([1] * 100_000, numbers, "strict"),
        lambda: matches_value(colliding, numbers, "strict"),
        lambda: matches_value_with_tolerance(numbers, colliding, "strict", rtol=1e-6, atol=0),
        lambda: matches_value_with_tolerance([digits] * 100, [1.0] * 100, "strict", rtol=1e-6, atol=0),
        lambda: matches_value_in_any_order([deep] * 100, [deep] * 99 + [[deep]], "strict"),
    ):
        assert seconds(compare) < 5  # quadratic time takes a minute and more


def test_plain_profiles_compare_values_strictly():
    assert {name for name, rule in value_rules_of({}).items() if rule == "strict"} == {"plain", "plain_numpy"}
