from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.evaluation import intervals
from autoclave.evaluation.intervals import Interval, bootstrap_interval, share_interval, wilson_interval

FIGURES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_the_interval_of_many_coins_is_that_of_the_normal_law():
    values = np.tile([0.0, 1.0], 200)
    found = bootstrap_interval(values)
    half_width = 1.96 * 0.5 / sqrt(400)  # deviation of one coin 1/2
    assert found.lower == pytest.approx(0.5 - half_width, abs=0.004)
    assert found.upper == pytest.approx(0.5 + half_width, abs=0.004)


def test_nineteen_intervals_in_twenty_hold_the_true_mean(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 500)
    generator = np.random.default_rng(1)
    found = [bootstrap_interval(generator.random(50)) for _ in range(300)]
    covered = np.mean([each.lower <= 0.5 <= each.upper for each in found])
    assert 0.90 <= covered <= 0.98  # 0.95 by design, 0.94 at 50 problems; three deviations of 300 trials are 0.04


@given(FIGURES)
def test_bounds_are_repeatable_and_lie_within_the_values(values):
    found = bootstrap_interval(values)
    assert found == bootstrap_interval(values)
    assert min(values) - 1e-12 <= found.lower <= found.upper <= max(values) + 1e-12


def test_resampling_in_chunks_gives_the_same_interval(monkeypatch):
    values = np.linspace(0, 1, 7)
    at_once = bootstrap_interval(values)
    monkeypatch.setattr(intervals, "_RESAMPLED_AT_ONCE", 50)
    assert bootstrap_interval(values) == at_once


def test_wilson_by_hand():
    # z = 1.959964, z^2 = 3.841459; 8 of 10: (0.8 + 0.192073) / 1.384146 = 0.716739;
    # 1.959964 * sqrt(0.016 + 0.00960365) / 1.384146 = 0.226577
    found = wilson_interval(8, 10)
    assert found.lower == pytest.approx(0.490162, abs=2e-6)
    assert found.upper == pytest.approx(0.943318, abs=2e-6)


def test_wilson_has_an_upper_bound_for_no_success():
    found = wilson_interval(0, 10)
    assert found.lower == 0.0
    assert found.upper == pytest.approx(3.841459 / 13.841459, abs=1e-6)  # z^2 / (n + z^2)


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors(case):
    successes, trials = case
    found, mirrored = wilson_interval(successes, trials), wilson_interval(trials - successes, trials)
    assert 0 <= found.lower <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= found.upper <= 1
    assert (found.lower, found.upper) == pytest.approx((1 - mirrored.upper, 1 - mirrored.lower), abs=1e-12)


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.5, 0.95])
def test_intervals_of_shares_keep_their_coverage_near_the_ends(rate: float):
    ends = [share_interval([1.0] * right + [0.0] * (164 - right)) for right in range(165)]
    found = [ends[right] for right in np.random.default_rng(3).binomial(164, rate, 20_000)]
    assert np.mean([each.lower <= rate <= each.upper for each in found]) >= 0.94


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
def test_intervals_cover_shares_of_several_samples(rate: float):
    generator = np.random.default_rng(3)
    skills = generator.beta(2 * rate, 2 * (1 - rate), (2000, 164))  # problems differ in how hard they are
    found = [share_interval(values) for values in generator.binomial(8, skills) / 8]
    assert np.mean([each.lower <= rate <= each.upper for each in found]) >= 0.93


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_with_one_sample_per_problem_it_is_the_interval_by_wilson(case):
    successes, trials = case
    found, plain = share_interval([1.0] * successes + [0.0] * (trials - successes)), wilson_interval(successes, trials)
    assert (found.lower, found.upper) == pytest.approx((plain.lower, plain.upper), abs=1e-9)


@given(FIGURES)
def test_an_interval_of_shares_holds_the_mean_and_stays_within_0_and_1(values):
    found = share_interval(values)
    assert 0 <= found.lower <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= found.upper <= 1


def test_equal_shares_count_as_one_trial_per_problem():
    assert share_interval([0.25] * 8) == wilson_interval(2, 8)


def test_invalid_arguments_are_errors():
    for values in ([], [[0.5]], [float("nan")], [1.1], [-0.1]):
        with pytest.raises(ValueError, match="share from 0 to 1"):
            share_interval(values)
    for values in ([], [[0.5]], [float("nan")]):
        with pytest.raises(ValueError, match="finite number"):
            bootstrap_interval(values)
    for successes, trials in ((0, 0), (-1, 3), (4, 3)):
        with pytest.raises(ValueError, match=f"{successes} of {trials}"):
            wilson_interval(successes, trials)


def test_intervals_compare_by_value():
    assert bootstrap_interval([0.5, 0.5]) == Interval(0.5, 0.5)
