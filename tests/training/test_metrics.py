"""The numbers of an iteration, counted by hand."""

from __future__ import annotations

import math

import pytest

from autoclave.algorithms import LedgerEntry
from autoclave.core import FinishReason, MaskReason
from autoclave.rollout import CollectionTimes
from autoclave.training.learned import Learned
from autoclave.training.metrics import describe_iteration, iteration_metrics
from tests.training_parts import completion, group_of

NOTHING = LedgerEntry(None, False, None, None, None, None, None)
TIMES = CollectionTimes(started=10.0, sampled=12.0, judged=12.5)


def metrics_of(*groups, **policy: float) -> dict[str, float]:
    count = sum(len(group.rollouts) for group in groups)
    return iteration_metrics(TIMES, Learned(groups, [NOTHING] * count, policy, [None] * count))


def test_rewards_statuses_and_shares_are_over_all_rollouts():
    cut = completion([5] * 9, finish_reason=FinishReason.LENGTH)
    metrics = metrics_of(
        group_of([1.0, 0.0], [completion(), cut], mask_reasons=[None, MaskReason.OVERLONG]),
        group_of([1.0, None], mask_reasons=[None, MaskReason.NO_VERDICT]),
        group_of([0.0, 1.0]),
        loss=0.25,
    )
    assert metrics["reward/mean"] == pytest.approx(3 / 5)  # one of six has none
    assert metrics["accepted_share"] == pytest.approx(3 / 6)
    assert metrics["status/wrong_answer"] == pytest.approx(2 / 6)
    assert metrics["status/no_verdict"] == metrics["no_verdict_share"] == pytest.approx(1 / 6)
    assert metrics["truncated_share"] == pytest.approx(1 / 6)
    assert metrics["masked_share"] == pytest.approx(2 / 6)
    assert metrics["groups/zero_variance_share"] == pytest.approx(2 / 3)  # one rollout alone teaches nothing
    assert metrics["response_length/mean"] == pytest.approx((5 * 3 + 9) / 6)
    assert metrics["policy/loss"] == 0.25


def test_times_are_those_of_the_collection():
    metrics = metrics_of(group_of([1.0, 0.0]))
    assert (metrics["time/sample_s"], metrics["time/judge_tail_s"]) == (2.0, 0.5)
    assert metrics["sampled_tokens_per_s"] == pytest.approx(6 / 2)


def test_an_iteration_without_any_verdict_has_no_mean_reward():
    metrics = metrics_of(group_of([None, None]))
    assert math.isnan(metrics["reward/mean"])
    assert metrics["no_verdict_share"] == 1.0
    assert "nan" in describe_iteration(metrics)
