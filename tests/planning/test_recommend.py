"""Advice from measured rates."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import ConfigError
from autoclave.planning import (
    Observed,
    Rates,
    ScheduleName,
    Split,
    Work,
    describe,
    every_split,
    fit_token_time,
    measured_profile,
    recommend,
    simulate,
)
from tests.planning.profiles import tiny

RATES = Rates(token_ms=10.0, batch_slope=0.01, slots=8, judge_slots=2, train_ms_per_token=1.0, sync_s=0.5)


@given(st.floats(0.1, 50), st.floats(0.001, 1), st.lists(st.integers(1, 256), min_size=2, max_size=5, unique=True))
def test_rates_that_follow_the_formula_give_its_constants(token_ms, slope, batches):
    fitted = fit_token_time({n: n / (token_ms / 1e3 * (1 + slope * n)) for n in batches})
    assert (fitted.token_ms, fitted.batch_slope) == pytest.approx((token_ms, slope), rel=1e-4)
    assert fitted.worst_error < 1e-6


def test_one_rate_gives_a_token_time_without_a_slope():
    fitted = fit_token_time({16: 2000.0})
    assert (fitted.token_ms, fitted.batch_slope, fitted.worst_error) == (pytest.approx(8.0), 0.0, pytest.approx(0))


@pytest.mark.parametrize("rates", [{1: 80.0, 2: 80.0, 8: 80.0}, {4: 100.0, 8: 300.0}, {1: 10.0, 64: 9.0}])
def test_every_measurement_gives_a_token_time_that_can_be_simulated(rates):
    fitted = fit_token_time(rates)
    assert fitted.token_ms > 0
    assert fitted.batch_slope >= 0
    assert fitted.worst_error <= 0.2


@pytest.mark.parametrize("rates", [{}, {0: 1.0}, {4: 0.0}])
def test_rates_that_are_none_are_an_error(rates):
    with pytest.raises(ConfigError, match="tokens_per_s"):
        fit_token_time(rates)


def test_a_measured_profile_has_whole_prompts_of_those_observed():
    observed = Observed(np.array([[3, 5], [7, 9]]), np.array([[0.1, 0.2], [0.3, 0.4]]))
    profile = measured_profile(RATES, observed, devices=4, groups=6, minibatches=3, iterations=5)
    seen = set()
    for works in profile.iterations:
        assert [work.group for work in works] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
        seen |= {(a.tokens, a.reward_s, b.tokens, b.reward_s) for a, b in zip(works[::2], works[1::2], strict=True)}
    assert seen == {(3, 0.1, 5, 0.2), (7, 0.3, 9, 0.4)}
    assert (profile.slots, profile.judge_slots, profile.sync_s, profile.mini_batches) == (8, 2, 0.5, 3)


def test_observations_of_two_shapes_are_an_error():
    with pytest.raises(ConfigError, match=r"tokens \(2, 2\) and reward_s \(2,\)"):
        Observed(np.ones((2, 2), dtype=np.int64), np.ones(2))


def test_the_table_has_every_schedule_on_every_split_and_the_fastest_comes_first():
    advice = recommend(tiny(), every_split(3), staleness=(1, 2))
    names = {candidate.name for candidate in advice.candidates}
    assert len(names) == len(advice.candidates) == 1 + 2 * 5
    assert {"synchronous 3 shared", "one_off_pipeline 1:2", "asynchronous(2) 2:1"} <= names
    seconds = [candidate.run.steady_s for candidate in advice.candidates]
    assert seconds == sorted(seconds)


def test_of_schedules_that_are_equally_fast_the_one_nearest_to_on_policy_is_taken():
    # Judging, learning and publishing cost nothing, so samples of older weights gain nothing.
    works = (Work(0, 2, 0.0), Work(1, 4, 0.0))
    profile = tiny(iterations=(works,) * 4, train_ms_per_token=0.0, sync_s=0.0, slots=1)
    advice = recommend(profile, [Split(1, 1)], staleness=(1, 2))
    assert advice.chosen.schedule is ScheduleName.SYNCHRONOUS


def test_where_learning_takes_as_long_as_sampling_a_pipeline_is_taken_unless_overlap_slows_it_down():
    profile = tiny(iterations=8, train_ms_per_token=1000.0, sync_s=0.0)
    assert recommend(profile, [Split(1, 1)], staleness=()).chosen.schedule is ScheduleName.ONE_OFF_PIPELINE
    slowed = recommend(profile, [Split(1, 1)], staleness=(), overlap_slowdown=3.0)
    assert slowed.chosen.schedule is ScheduleName.SYNCHRONOUS
    fast, slow = (
        next(each.run.steady_s for each in advice.candidates if each.schedule is ScheduleName.ONE_OFF_PIPELINE)
        for advice in (recommend(profile, [Split(1, 1)]), slowed)
    )
    assert slow == pytest.approx(3 * fast)


def test_seconds_of_a_long_pipeline_are_those_of_its_bottleneck():
    # Everything is learnt from at once on one device: 6 tokens of 5 s, and a publish of 1 s.
    profile = tiny(iterations=4, train_ms_per_token=5000.0)
    for candidate in recommend(profile, [Split(1, 1)], staleness=(1, 2, 4)).candidates:
        if candidate.max_staleness:
            assert candidate.run.steady_s == pytest.approx(31)
    alone = simulate(profile, ScheduleName.ASYNCHRONOUS, Split(1, 1), max_staleness=2)
    assert alone.steady_s == alone.whole_s  # too few iterations to have a steady part


def test_the_table_marks_the_one_to_take():
    advice = recommend(tiny(), every_split(4), staleness=(1,))
    lines = describe(advice, rows=3).splitlines()
    (marked,) = [line for line in lines if line.startswith("->")]
    assert advice.chosen.name in marked
    assert lines[-1].strip().endswith("slower ones")


def test_no_split_is_an_error():
    with pytest.raises(ConfigError, match="give at least one"):
        recommend(tiny(), [])


def test_the_example_of_the_documentation_recommends_something(capsys: pytest.CaptureFixture[str]):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "plan.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rng = np.random.default_rng(0)
    seen = {"tokens": rng.integers(1, 4000, (16, 2)), "reward_s": rng.uniform(1, 5, (16, 2))}
    exec(example.replace("groups=32", "groups=8"), seen)
    assert "->" in capsys.readouterr().out
