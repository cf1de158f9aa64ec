from __future__ import annotations

from itertools import combinations
from math import comb, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.evaluation.intervals import mean_pass_at_k


@st.composite
def counts(draw):
    """n, c and k of one problem."""
    num_samples = draw(st.integers(1, 40))
    return num_samples, draw(st.integers(0, num_samples)), draw(st.integers(1, num_samples))


def test_pass_at_2_equals_the_enumeration_of_all_pairs():
    right = [True, True, False, False, False]
    drawn = [any(pair) for pair in combinations(right, 2)]
    assert mean_pass_at_k([(5, 2)], 2) == pytest.approx(sum(drawn) / len(drawn))  # 7 of 10


@given(counts())
def test_the_product_equals_the_binomials(case):
    n, c, k = case
    assert mean_pass_at_k([(n, c)], k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


@given(counts())
def test_one_sample_passes_as_often_as_samples_are_right(case):
    n, c, _ = case
    assert mean_pass_at_k([(n, c)], 1) == pytest.approx(c / n)


@given(counts())
def test_pass_at_k_grows_with_k_and_with_right_samples(case):
    n, c, k = case
    chance = mean_pass_at_k([(n, c)], k)
    assert 0 <= chance <= 1
    if k < n:
        assert mean_pass_at_k([(n, c)], k + 1) >= chance - 1e-12
    if c < n:
        assert mean_pass_at_k([(n, c + 1)], k) >= chance - 1e-12


def test_large_numbers_of_samples_stay_finite():
    # C(100000, 50000) does not fit a float; one right sample is among half of all with chance 1/2
    assert mean_pass_at_k([(100_000, 1)], 50_000) == pytest.approx(0.5)


def test_problems_weigh_the_same_for_any_number_of_samples():
    assert mean_pass_at_k([(2, 1), (100, 0)], 1) == 0.25


def test_problems_with_too_few_samples_are_left_out():
    assert mean_pass_at_k([(1, 0), (2, 2)], 2) == 1.0
    assert isnan(mean_pass_at_k([(1, 1)], 2))
