from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.tasks.final_values import BadAnswerError, as_json, is_same, last_object, which_right, written

PRIMITIVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    PRIMITIVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@given(VALUES)
def test_written_values_are_read_back_equal(value: Any):
    assert is_same(value, last_object(f"some reasoning\n{written({'x': value})}\n")["x"])


@given(PRIMITIVES, PRIMITIVES)
def test_values_of_other_types_are_never_the_same(one: Any, other: Any):
    if type(one) is not type(other):
        assert not is_same(one, json.loads(written(other)))


@pytest.mark.parametrize(
    ("expected", "given", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (1, "1", False),
        (0, False, False),
        (1.0, 1, False),
        (True, True, True),
        (None, None, True),
        (None, False, False),
        (math.nan, math.nan, True),
        (math.nan, 0.0, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (0.0, -0.0, True),
        (10**400, 10**400, True),
        (10**400, 10**400 + 1, False),
        ("é", "é", True),
        ("é", "e\u0301", False),
        ((1, 2), [1, 2], True),
        ((1, 2), [1, 2.0], False),
        ({2, 1}, [2, 1], True),
        ({2, 1}, [2, 2], False),
        ({1: "a"}, {"1": "a"}, True),
        ([], {}, False),
    ],
)
def test_values_are_the_same_if_equal_and_of_one_type(expected: Any, given: Any, same: bool):
    assert is_same(expected, given) is same


def test_floats_may_be_off_by_a_tolerance_and_nothing_else_may():
    assert is_same(100.0, 100.9, float_tolerance=0.01)
    assert not is_same(100.0, 101.1, float_tolerance=0.01)
    assert not is_same(100, 101, float_tolerance=0.5)
    assert not is_same(math.inf, 1.0, float_tolerance=0.5)


@pytest.mark.parametrize(
    "response",
    [
        "",
        " \n\n",
        "x = 3",
        "[1, 2]",
        "3",
        '{"x": 1} and that is it',
        '{"x": 1}\nThat is it.',
        '{"x": 1, "x": 2}',
        '{"x": 0x10}',
        "{'x': 1}",
        '{"x": ' + "9" * 10_000 + "}",
        '{"x": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"x": "' + "a" * 200_000 + '"}',
        "```json\n{}\n```",
    ],
)
def test_an_answer_must_be_a_json_object_on_the_last_line(response: str):
    with pytest.raises(BadAnswerError):
        last_object(response)


def test_only_the_last_line_counts():
    assert last_object('{"x": 1}\nno, rather\n  {"x": 2}  \n\n') == {"x": 2}


def test_each_variable_counts_by_itself_and_others_do_not():
    expected = {"a": 1, "b": "x", "c": None, "d": 2.5}
    found = which_right(expected, {"a": 1, "b": 1, "c": None, "z": 3})
    assert found == {"a": True, "b": False, "c": True, "d": False}


def test_tuples_sets_and_keys_have_a_json_form():
    assert as_json({(1, 2): {3, 1}, "k": (None, True)}) == {"[1, 2]": [1, 3], "k": [None, True]}


@pytest.mark.parametrize("depth", [100, 600])
def test_an_answer_nested_deeper_than_any_set_is_wrong(depth: int):
    given = last_object('{"x": [' + "[" * depth + "]" * depth + "]}")["x"]
    assert not is_same({1}, given)
