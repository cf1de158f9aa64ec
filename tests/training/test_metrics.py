"""The numbers of an iteration, counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autoclave.algorithms import LedgerEntry
from autoclave.core import AlignmentSample, FinishReason, Group, MaskReason, Reward, Rollout, TaskItem
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


def credit_of(group: Group, advantages: list[float]) -> dict[str, float]:
    entries = [
        LedgerEntry(r.reward.value, True, 0.5, 0.5, advantage, 0.1, None)
        for r, advantage in zip(group.rollouts, advantages, strict=True)
    ]
    found = iteration_metrics(TIMES, Learned([group], entries, {}, [None] * len(entries)))
    return {name: value for name, value in found.items() if name.startswith("credit/")}


def test_advantages_are_correlated_with_rewards_and_rewards_compared_with_verdicts():
    group = group_of([1.0, 0.0] * 8)
    assert credit_of(group, [0.7, -0.7] * 8) == pytest.approx(
        {"credit/reward_verdict": 1, "credit/advantage_reward": 1}
    )
    assert credit_of(group, [-0.7, 0.7] * 8)["credit/advantage_reward"] == pytest.approx(-1)
    assert "credit/advantage_reward" not in credit_of(group_of([1.0, 0.0]), [0.7, -0.7])  # too few
    inverted = [replace(r, reward=replace(r.reward, value=1 - r.reward.value)) for r in group.rollouts]
    assert credit_of(Group(group.item, tuple(inverted)), [0.7, -0.7] * 8)["credit/reward_verdict"] == -1
    assert credit_of(group_of([0.0] * 16), [0.0] * 16) == {}


def test_the_standard_error_is_over_problems():
    metrics = metrics_of(*[group_of([1.0, 1.0])] * 4, *[group_of([0.0, None])] * 4)
    assert metrics["reward/standard_error"] == pytest.approx(math.sqrt(2 / 7 / 8))
    assert "reward/standard_error" not in metrics_of(group_of([1.0, 0.0]))


def test_times_are_those_of_the_collection():
    metrics = metrics_of(group_of([1.0, 0.0]))
    assert (metrics["time/sample_s"], metrics["time/judge_tail_s"]) == (2.0, 0.5)
    assert metrics["sampled_tokens_per_s"] == pytest.approx(6 / 2)


def test_an_iteration_without_any_verdict_has_no_mean_reward():
    metrics = metrics_of(group_of([None, None]))
    assert math.isnan(metrics["reward/mean"])
    assert metrics["no_verdict_share"] == 1.0
    assert "nan" in describe_iteration(metrics)


def alignment_samples(rewards: list[tuple[float, str, dict[str, float]]]) -> Group:
    about = AlignmentSample(
        problem_id="p",
        test=0,
        program="x" * 150,
        entry="<module>",
        input="",
        variables={"a": "1", "b": "'s'"},
        version=3,
    )
    asked = TaskItem("execution_semantics", "p/1", "p/1", (), about)
    later = replace(completion([5] * 7), policy_versions=((5, 0, 7),))
    return Group(
        asked,
        tuple(
            Rollout(asked, n, (later,), Reward(v, why, parts), length_limit=8)
            for n, (v, why, parts) in enumerate(rewards)
        ),
    )


def test_alignment_samples_are_counted_by_themselves():
    answered = alignment_samples(
        [
            (1.0, "exact", {"variable/a": 1.0, "variable/b": 1.0}),
            (0.5, "partly", {"variable/a": 1.0, "variable/b": 0.0}),
            (0.0, "bad_format", {}),
            (0.0, "wrong", {"variable/a": 0.0, "variable/b": 0.0}),
        ]
    )
    metrics = metrics_of(group_of([1.0, 1.0]), answered)
    assert metrics["reward/mean"] == metrics["accepted_share"] == 1.0
    assert metrics["response_length/mean"] == 3
    assert metrics["sampled_tokens"] == 2 * 3 + 4 * 7
    assert metrics["alignment/reward"] == pytest.approx(1.5 / 4)
    assert metrics["alignment/exact_share"] == metrics["alignment/bad_format_share"] == 1 / 4
    assert metrics["alignment/accuracy/kind/int"] == 2 / 4
    assert metrics["alignment/accuracy/kind/str"] == 1 / 4
    assert metrics["alignment/accuracy/length/under-200"] == pytest.approx(1.5 / 4)
    assert metrics["alignment/staleness"] == 2


def test_an_iteration_of_alignment_samples_alone_has_no_figures_of_programs():
    metrics = metrics_of(alignment_samples([(1.0, "exact", {"variable/a": 1.0, "variable/b": 1.0})]))
    assert metrics["accepted_share"] == metrics["no_verdict_share"] == 0
    assert math.isnan(metrics["reward/mean"])
    assert metrics["alignment/reward"] == 1
    describe_iteration(metrics)


def test_without_alignment_samples_nothing_is_said_of_them():
    assert not [name for name in metrics_of(group_of([1.0, 0.0])) if name.startswith("alignment")]
