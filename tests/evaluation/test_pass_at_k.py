from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.evaluation.intervals import mean_pass_at_k, pass_at_k


@st.composite
def counts(draw):
    """n, c and k of one problem."""
    num_samples = draw(st.integers(1, 40))
    return num_samples, draw(st.integers(0, num_samples)), draw(st.integers(1, num_samples))


def test_pass_at_2_equals_the_enumeration_of_all_pairs():
    right = [True, True, False, False, False]
    drawn = [any(pair) for pair in combinations(right, 2)]
    assert pass_at_k(5, [2], 2).tolist() == pytest.approx([sum(drawn) / len(drawn)])  # 7 of 10


@given(counts())
def test_the_product_equals_the_binomials(case):
    n, c, k = case
    assert pass_at_k(n, [c], k)[0] == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


@given(counts())
def test_one_sample_passes_as_often_as_samples_are_right(case):
    n, c, _ = case
    assert pass_at_k(n, [c], 1)[0] == pytest.approx(c / n)


@given(counts())
def test_pass_at_k_grows_with_k_and_with_right_samples(case):
    n, c, k = case
    chance = pass_at_k(n, [c], k)[0]
    assert 0 <= chance <= 1
    if k < n:
        assert pass_at_k(n, [c], k + 1)[0] >= chance - 1e-12
    if c < n:
        assert pass_at_k(n, [c + 1], k)[0] >= chance - 1e-12


def test_large_numbers_of_samples_stay_finite():
    # C(100000, 50000) does not fit a float; one right sample is among half of all with chance 1/2
    assert pass_at_k(100_000, [1], 50_000)[0] == pytest.approx(0.5)


def test_problems_weigh_the_same_for_any_number_of_samples():
    assert pass_at_k([2, 100], [1, 0], 1).tolist() == [0.5, 0.0]
    assert mean_pass_at_k(np.array([2, 100]), np.array([1, 0]), 1) == 0.25


@pytest.mark.parametrize(
    ("samples", "correct", "k", "message"),
    [
        (4, [1], 5, "at most the number of samples, 4"),
        (4, [1], 0, "at least 1"),
        (4, [5], 1, "num_correct"),
        (4, [-1], 1, "num_correct"),
        (4, [0.5], 1, "whole numbers"),
        ([4, 4, 4], [1, 2], 1, "broadcast"),
    ],
)
def test_impossible_counts_are_errors(samples, correct, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(samples, correct, k)


def test_figures_of_a_benchmark_without_problems_are_nan():
    with pytest.raises(ValueError, match="no problems"):
        mean_pass_at_k(4, np.zeros(0, dtype=np.int64), 1)
