"""GRPO+ learns what is rewarded, quickly, and learns nothing from rewards that have nothing to do with the response."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autoclave.config import GrpoConfig, PpoConfig
from autoclave.training.learned import Learned, ShuffledItems
from autoclave.training.schedules import RunProgress, synchronous
from tests.training.toy import ITEMS, is_even, toy_stages

STEPS = 25


def shares_of_even(learned: list[Learned]) -> list[float]:
    """Of each iteration, the share of responses that do what the task asks, whatever they were paid."""
    return [
        float(np.mean([is_even(rollout.last.text) for group in each.groups for rollout in group.rollouts]))
        for each in learned
    ]


def learn(**settings: object) -> list[Learned]:
    with toy_stages(steps=STEPS, **settings) as stages:
        source = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        return [iteration.learned for iteration in synchronous(stages, source, RunProgress(0, STEPS))]


@pytest.mark.parametrize(
    "settings", [{}, {"algorithm": GrpoConfig()}, {"algorithm": PpoConfig()}], ids=["grpo_plus", "grpo", "ppo"]
)
def test_what_is_rewarded_becomes_the_rule(settings):
    shares = shares_of_even(learn(**settings))
    assert shares[0] < 0.5
    assert np.mean(shares[-3:]) > 0.8


def test_rewards_that_ignore_the_response_teach_nothing():
    chance = random.Random(0)
    shares = shares_of_even(learn(rule=lambda response: float(chance.random() < 0.3)))
    assert np.mean(shares[-3:]) < 0.6


def test_equal_rewards_leave_the_policy_as_it_is():
    with toy_stages(rule=lambda response: 1.0) as stages:
        before = stages.actor.export_weights().result()
        first, _ = synchronous(stages, ShuffledItems(ITEMS, per_iteration=4, seed=0), RunProgress(0, 2))
        after = stages.actor.export_weights().result()
    assert first.learned.metrics == {}
    assert all((before[name] == after[name]).all() for name in before)


def test_on_policy_the_sampler_and_the_trainer_agree_on_log_probs():
    gaps = [each.metrics["log_prob_mismatch"] for each in learn() if each.metrics]
    assert max(gaps) < 1e-4


def test_rollouts_are_stamped_with_the_version_that_sampled_them():
    for iteration, each in enumerate(learn()[:4]):
        versions = {rollout.last.policy_versions[0][0] for group in each.groups for rollout in group.rollouts}
        assert versions == {iteration}


def test_the_same_seed_gives_the_same_run():
    first, second = learn(), learn()
    for one, other in zip(first, second, strict=True):
        assert one.ledger == other.ledger
        texts = [[r.last.text for group in each.groups for r in group.rollouts] for each in (one, other)]
        assert texts[0] == texts[1]
