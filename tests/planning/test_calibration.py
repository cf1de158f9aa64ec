"""Rates from timelines: those of a simulated run are the ones that it was simulated with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.planning.calibration import (
    Calibration,
    calibrate,
    reward_seconds,
    sampling_times,
)
from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import ScheduleName, Split, simulate
from tests.planning.profiles import tiny

GROUPS, SIZE = 6, 4


def drawn(seed: int, iterations: int, **changes: float) -> Profile:
    """Responses of 20 to 400 tokens."""
    rng = np.random.default_rng(seed)
    works = [
        tuple(
            Work(group, int(tokens), float(seconds))
            for group in range(GROUPS)
            for tokens, seconds in zip(rng.integers(20, 400, SIZE), rng.uniform(0.1, 3, SIZE), strict=True)
        )
        for _ in range(iterations)
    ]
    return replace(tiny(iterations=tuple(works), slots=16, judge_slots=2, token_ms=50.0, batch_slope=0.05), **changes)


def recorded(profile: Profile, schedule: ScheduleName, split: Split) -> list[StepTimeline]:
    """Timelines as the simulated run would have left: requests name item and sample, and say their tokens."""
    run = simulate(profile, schedule, split, max_staleness=1)
    steps: list[StepTimeline] = []
    for step, (start, end) in enumerate(zip([0.0, *run.ends], run.ends, strict=False), start=1):
        spans = [named(profile, span) for span in run.spans if span.step == step]
        steps.append(StepTimeline(step, start, end, tuple(spans)))
    return steps


def named(profile: Profile, span: Span) -> Span:
    if span.role not in (Role.SAMPLER, Role.JUDGE):
        return span
    number = int(span.name)
    work = profile.iterations[span.step - 1][number]
    attributes = {"tokens": work.tokens} if span.role is Role.SAMPLER else {}
    # A reward is asked for when its response is there, and its span begins then.
    return replace(span, name=f"p{span.step}-{work.group}#{number % SIZE}", attributes=attributes)


def asked_at_once(steps: Sequence[StepTimeline]) -> list[StepTimeline]:
    """With rewards that begin when their response ends, as those of a real run do, time in the queue included."""
    found: list[StepTimeline] = []
    for step in steps:
        sampled = {span.name: span.end for span in step.spans if span.role is Role.SAMPLER}
        spans = (replace(span, start=sampled[span.name]) if span.role is Role.JUDGE else span for span in step.spans)
        found.append(replace(step, spans=tuple(spans)))
    return found


SPLIT = Split(2, 3)
PLACE = {"slots": 16, "judge_slots": 2, "group_size": SIZE}


@pytest.mark.parametrize("schedule", ScheduleName)
def test_what_a_simulated_run_shows_are_the_rates_that_it_was_simulated_with(schedule: ScheduleName):
    profile = drawn(0, 4)
    found = calibrate(asked_at_once(recorded(profile, schedule, SPLIT)), SPLIT, **PLACE)
    for running, rate in found.sampling.tokens_per_s.items():
        assert rate == pytest.approx(running / profile.token_s(running), rel=0.01)  # the formula is linear in it
    assert len(found.sampling.tokens_per_s) > 4
    assert found.rates.train_ms_per_token == pytest.approx(profile.train_ms_per_token)
    assert found.rates.sync_s == pytest.approx(profile.sync_s)
    assert found.groups == GROUPS
    works = [work for iteration in profile.iterations[1:] for work in iteration]  # the first one warms up
    assert sorted(found.tokens.ravel()) == sorted(work.tokens for work in works)
    assert found.reward_s.sum() == pytest.approx(sum(work.reward_s for work in works), rel=0.02)


@pytest.mark.parametrize("schedule", ScheduleName)
def test_a_plan_by_those_rates_predicts_the_run_itself(schedule: ScheduleName):
    profile = drawn(1, 12)
    run = simulate(profile, schedule, SPLIT, max_staleness=1)
    found = calibrate(asked_at_once(recorded(profile, ScheduleName.SYNCHRONOUS, SPLIT)), SPLIT, **PLACE)
    predicted = simulate(found.profile(2), schedule, SPLIT, max_staleness=1)
    assert predicted.steady_s == pytest.approx(run.steady_s, rel=0.1)  # iterations are sampled again


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=30), st.integers(1, 4))
@settings(deadline=None)
def test_rewards_without_their_time_in_the_queue(asked: list[tuple[float, float]], slots: int):
    now, free, spans = 0.0, [0.0] * slots, []
    for pause, taken in asked:
        now += pause
        slot = min(range(slots), key=lambda i: free[i])
        free[slot] = max(now, free[slot]) + taken
        spans.append(Span(Role.JUDGE, "r", now, free[slot], 1))
    assert reward_seconds(spans, slots) == pytest.approx([taken for _, taken in asked], abs=1e-6)


def test_token_times_by_hand():
    # One request of 10 tokens alone takes 1 s, then two of 10 tokens side by side take 2 s.
    def request(start: float, end: float) -> Span:
        return Span(Role.SAMPLER, "p#0", start, end, 1, "", {"tokens": 10})

    found = sampling_times([request(0, 1), request(5, 7), request(5, 7)])
    assert found.start_tokens == 0
    assert found.tokens_per_s == pytest.approx({1.0: 10.0, 2.0: 10.0})


def test_requests_of_two_devices_do_not_slow_each_other_down():
    spans = [Span(Role.SAMPLER, "p#0", 0.0, 1.0, 1, lane, {"tokens": 10}) for lane in "ab"]
    assert sampling_times(spans).tokens_per_s == pytest.approx({1.0: 10.0})


def test_an_item_that_was_asked_again_has_two_groups_and_what_is_over_is_left_out():
    def pair(sample: int, start: float, tokens: int) -> list[Span]:
        request = Span(Role.SAMPLER, f"p#{sample}", start, start + 1, 1, "", {"tokens": tokens})
        return [request, Span(Role.JUDGE, f"p#{sample}", start + 1, start + 2, 1)]

    spans = [*pair(0, 0, 3), *pair(1, 0, 4), *pair(0, 5, 5), *pair(1, 5, 6), *pair(0, 9, 7)]
    spans.append(Span(Role.TRAINER, "learn", 11, 12, 1))
    found = calibrate([StepTimeline(1, 0, 12, tuple(spans))], Split(1, 1), slots=4, judge_slots=2, group_size=2)
    assert found.tokens.tolist() == [[3, 4], [5, 6]]
    assert found.groups == 2
    assert found.rates.train_ms_per_token == 1000 / 25
    assert found.rates.sync_s == 0


def test_a_timeline_without_whole_groups_is_bad_input():
    learn = Span(Role.TRAINER, "learn", 0.0, 1.0, 1)
    with pytest.raises(InputError, match="no step has requests of whole groups and an update"):
        calibrate([StepTimeline(1, 0.0, 1.0, (learn,))], SPLIT, **PLACE)


def calibrated(profile: Profile, schedule: ScheduleName) -> Calibration:
    return calibrate(recorded(profile, schedule, SPLIT), SPLIT, **PLACE)


def test_how_much_slower_both_are_while_both_work():
    alone = calibrated(drawn(2, 3), ScheduleName.SYNCHRONOUS)
    together = calibrated(drawn(2, 3).slowed(1.5), ScheduleName.ONE_OFF_PIPELINE)
    assert alone.slowdown(together) == pytest.approx(1.5, rel=0.02)
    assert together.slowdown(alone) == 1  # never faster


def test_what_a_request_takes_before_its_first_token_is_counted_in_tokens():
    # 2 s for the prompt, then 0.1 s a token, whatever runs beside it.
    def request(number: int, tokens: int) -> Span:
        return Span(Role.SAMPLER, f"p#{number}", 0.0, 2 + 0.1 * tokens, 1, "", {"tokens": tokens})

    found = sampling_times([request(number, tokens) for number, tokens in enumerate((10, 20, 30, 50))])
    assert found.start_tokens == pytest.approx(20)
    assert found.token_ms == pytest.approx(100)
    assert found.batch_slope == pytest.approx(0)
