"""Scaled targets, by hand and by properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.evaluation.probing.result import number_of, scaled

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.tuples(FINITE, st.integers(0, 2), st.booleans()), min_size=1, max_size=30)


def columns(rows):
    values, problems, is_test = zip(*rows, strict=True)
    return np.array(values, dtype=float), np.array(problems), np.array(is_test, dtype=bool)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (-2.5, -2.5),
        (10**300, 1e300),
        (10**400, None),  # beyond the floats
        (2**63 + 1, 2.0**63),
        (True, None),
        (False, None),
        (math.nan, None),
        (-math.inf, None),
        ("3", None),
        (None, None),
    ],
)
def test_numbers_are_finite_ints_and_floats_and_nothing_else(value, number):
    assert number_of(value) == number


def test_each_problem_is_scaled_by_its_own_training_values():
    found = scaled(
        *columns([(0, 0, False), (10, 0, False), (5, 0, True), (20, 0, True), (-1, 1, False), (1, 1, False)])
    )
    assert found.tolist() == [-1, 1, 0, 3, -1, 1]


def test_a_problem_with_equal_training_values_or_with_none_has_no_scale():
    found = scaled(*columns([(4, 0, False), (4, 0, False), (9, 0, True), (1, 1, True), (2, 1, True)]))
    assert np.isnan(found).all()


@given(ROWS)
def test_training_targets_fill_minus_one_to_one(rows):
    values, problems, is_test = columns(rows)
    targets = scaled(values, problems, is_test)
    for problem in range(3):
        found = targets[(problems == problem) & ~is_test]
        if len(found) and not np.isnan(found).any():
            assert (found.min(), found.max()) == (-1, 1)


@given(ROWS, st.data())
def test_test_values_do_not_change_other_targets(rows, data):
    values, problems, is_test = columns(rows)
    before = scaled(values, problems, is_test)
    changed = np.where(is_test, np.array(data.draw(st.lists(FINITE, min_size=len(rows), max_size=len(rows)))), values)
    after = scaled(changed, problems, is_test)
    np.testing.assert_array_equal(after[~is_test], before[~is_test])
    np.testing.assert_array_equal(np.isnan(after), np.isnan(before))
