"""Reinforcement learning of an adapter: it learns what is rewarded, beside a reference that takes no memory."""

from __future__ import annotations

import numpy as np

from autoclave.config import GrpoConfig, LoraConfig
from autoclave.training.learned import Learned, ShuffledItems
from autoclave.training.schedules import RunProgress, synchronous
from tests.training.toy import ITEMS, is_even, toy_stages

LORA = LoraConfig(rank=8, alpha=32.0)


def learn(steps: int, **settings: object) -> list[Learned]:
    with toy_stages(steps=steps, lora=LORA, **settings) as stages:
        source = ShuffledItems(ITEMS, per_iteration=4, seed=0)
        return [iteration.learned for iteration in synchronous(stages, source, RunProgress(0, steps))]


def share_of_even(learned: Learned) -> float:
    texts = [rollout.last.text for group in learned.groups for rollout in group.rollouts]
    return float(np.mean([is_even(text) for text in texts]))


def test_an_adapter_learns_what_is_rewarded():
    learned = learn(30, group_size=32)
    shares = [share_of_even(each) for each in learned]
    assert shares[0] < 0.5
    assert np.mean(shares[-3:]) > 0.8
    assert max(each.metrics["log_prob_mismatch"] for each in learned if each.metrics) < 1e-4  # merged equals adapted


def test_the_actor_without_its_adapter_is_as_good_as_a_reference_of_its_own():
    algorithm = GrpoConfig(kl_coefficient=0.1)
    own, shared = (learn(6, algorithm=algorithm, shares_reference=shares) for shares in (False, True))
    assert any(each.metrics["reference_kl"] > 0 for each in own)
    for one, other in zip(own, shared, strict=True):
        assert one.metrics == other.metrics
        assert one.ledger == other.ledger
