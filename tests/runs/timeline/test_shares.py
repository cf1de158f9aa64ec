"""Busy and hidden shares, worked out by hand."""

from __future__ import annotations

import pytest

from autoclave.core.timeline import Role, Span
from autoclave.runs.timeline import role_times, share_metrics, together


def span(role: Role, start: float, end: float, step: int = 1) -> Span:
    return Span(role, "x", start, end, step)


SYNCHRONOUS = [
    span(Role.SAMPLER, 0, 4),
    span(Role.SAMPLER, 1, 6),
    span(Role.JUDGE, 4, 5),  # hidden
    span(Role.JUDGE, 6, 8),  # its tail
    span(Role.TRAINER, 8, 9.5),
    span(Role.PUBLISH, 9.5, 10),
    span(Role.EVALUATION, 10, 30),  # after the barrier
]


def test_a_synchronous_step_hides_only_what_is_judged_while_others_are_sampled():
    times = role_times(SYNCHRONOUS, (0, 10))
    assert {role: times.busy(role) for role in Role} == pytest.approx(
        {"sampler": 0.6, "judge": 0.3, "trainer": 0.15, "publish": 0.05, "evaluation": 0, "checkpoint": 0}
    )
    assert times.hidden(Role.JUDGE) == pytest.approx(1 / 3)
    assert times.hidden(Role.TRAINER) == 0
    assert times.bottleneck is Role.SAMPLER
    assert (times.longest_gap_s[Role.SAMPLER], times.num_gaps[Role.SAMPLER]) == (4, 1)
    assert (times.longest_gap_s[Role.JUDGE], times.num_gaps[Role.JUDGE]) == (4, 3)  # 0-4, 5-6, 8-10


def test_sampling_ahead_for_the_next_step_hides_the_trainer():
    spans = [span(Role.SAMPLER, 1, 9, step=2), span(Role.JUDGE, 3, 9.5, step=2), span(Role.TRAINER, 0, 4)]
    metrics = share_metrics(role_times(spans, (0, 10)))
    assert metrics == pytest.approx(
        {
            "busy/sampler": 0.8,
            "busy/judge": 0.65,
            "busy/trainer": 0.4,
            "hidden/reward": 6 / 6.5,
            "hidden/trainer": 0.75,
        }
    )


def test_a_span_that_reaches_out_of_the_window_counts_with_its_part_inside():
    times = role_times([span(Role.SAMPLER, -5, 2), span(Role.SAMPLER, 8, 50)], (0, 10))
    assert times.busy(Role.SAMPLER) == pytest.approx(0.4)


def test_there_is_no_hidden_share_of_nothing():
    assert share_metrics(role_times([], (0, 10))) == {"busy/sampler": 0, "busy/judge": 0, "busy/trainer": 0}
    assert share_metrics(role_times(SYNCHRONOUS, (5, 5)))["busy/sampler"] == 0


def test_steps_together_are_weighted_by_their_seconds():
    long, short = role_times(SYNCHRONOUS, (0, 10)), role_times([span(Role.TRAINER, 0, 2)], (0, 2))
    whole = together([long, short])
    assert whole.busy(Role.TRAINER) == pytest.approx(3.5 / 12)
    assert whole.busy(Role.SAMPLER) == pytest.approx(6 / 12)
    assert whole.hidden(Role.JUDGE) == pytest.approx(1 / 3)
    assert (whole.longest_gap_s[Role.SAMPLER], whole.num_gaps[Role.SAMPLER]) == (4, 2)


def test_the_bottleneck_is_the_busiest_of_those_that_work():
    assert role_times([*SYNCHRONOUS, span(Role.TRAINER, 0, 8)], (0, 10)).bottleneck is Role.TRAINER
