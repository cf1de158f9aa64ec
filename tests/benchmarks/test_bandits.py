"""The bandits that algorithms are measured on: who is right, what is to be expected, and that learning is learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from bandits import END, LENGTH_LIMIT, Bandits, Learner, first_weights, sample, sample_groups
from grpo_plus import BOTH, PLAIN, REDUCERS, Plan, Ratio, race, spread

from autoclave.algorithms import build_algorithm, is_uniform
from autoclave.config import DapoConfig, OptimizerConfig
from autoclave.core import FinishReason

KINDS = pytest.mark.parametrize("kind", ["answer", "collect"])


def drawn(kind: str, seed: int = 0) -> tuple[Bandits, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return Bandits.drawn(kind, 8, rng), first_weights(rng)


def learner(kind: str, arm: str = BOTH) -> tuple[Bandits, Learner]:
    bandits, weights = drawn(kind)
    return bandits, Learner(bandits, build_algorithm(REDUCERS[arm]), weights, OptimizerConfig(learning_rate=0.2), 2)


def response(*words: int) -> np.ndarray:
    """(1, LENGTH_LIMIT) tokens: words that END ends."""
    return np.array([[*words, *[END] * (LENGTH_LIMIT - len(words))]])


@pytest.mark.parametrize(
    ("kind", "words", "is_right"),
    [
        ("answer", (1, 2, 3), True),
        ("answer", (3, 1), False),
        ("answer", (), False),
        ("collect", (3, 1, 3), True),
        ("collect", (3, 1), False),
        ("collect", (3,) * 9, True),
        ("answer", (3,) * LENGTH_LIMIT, False),  # cut: it does not end
        ("collect", (3,) * LENGTH_LIMIT, False),
    ],
)
def test_a_response_is_right_if_it_ends_with_the_secret_or_says_it_often_enough(kind, words, is_right):
    bandits = replace(drawn(kind)[0], secrets=np.full(8, 3), needed=np.full(8, 2))
    assert bandits.are_right(np.array([0]), response(*words)).tolist() == [is_right]


@KINDS
def test_the_expected_reward_is_what_samples_come_to(kind):
    bandits, weights = drawn(kind)
    weights[0, :, END] -= 1.5  # so that some responses are cut
    rollouts = sample(bandits, weights, np.arange(8).repeat(2000), np.random.default_rng(1))
    cut = [rollout.last.finish_reason is FinishReason.LENGTH for rollout in rollouts]
    rewards = [rollout.reward.value for rollout in rollouts]
    assert 0.02 < np.mean(cut) < 0.98
    assert bandits.expected_reward(weights) == pytest.approx(np.mean(rewards), abs=4 * np.std(rewards) / 16_000**0.5)


@KINDS
def test_log_probs_of_a_response_are_those_of_its_tokens(kind):
    bandits, weights = drawn(kind)
    (rollout, *_) = sample(bandits, weights, np.array([5]), np.random.default_rng(0))
    logits = torch.einsum("f,fsv->sv", torch.from_numpy(bandits.features[5]), weights)
    before = [END, *rollout.last.tokens[:-1].tolist()]
    expected = [logits[s].log_softmax(0)[v].item() for s, v in zip(before, rollout.last.tokens, strict=True)]
    assert rollout.last.log_probs == pytest.approx(expected, abs=1e-5)
    assert END not in rollout.last.tokens[:-1]


@KINDS
def test_learning_raises_the_expected_reward(kind):
    bandits, policy = learner(kind)
    before, rng = bandits.expected_reward(policy.weights), np.random.default_rng(0)
    for _ in range(12):
        policy.learn(sample_groups(bandits, policy.weights, 8, 8, policy.algorithm, rng)[0])
    assert bandits.expected_reward(policy.weights) > before + 0.1


def test_a_copy_learns_the_same_and_leaves_its_original_alone():
    bandits, policy = learner("answer")
    rng = np.random.default_rng(0)
    groups = [sample_groups(bandits, policy.weights, 8, 8, policy.algorithm, rng)[0] for _ in range(2)]
    policy.learn(groups[0])
    before = policy.weights.detach().clone()
    gradients = [policy.copy(policy.algorithm).learn(groups[1]).gradients for _ in range(2)]
    assert torch.equal(*gradients)
    assert torch.equal(policy.weights, before)
    assert torch.equal(policy.learn(groups[1]).gradients, gradients[0])


def test_reducers_act_only_where_they_are_on():
    bandits, policy = learner("collect", PLAIN)
    rng = np.random.default_rng(0)
    found = {arm: [] for arm in REDUCERS}
    for _ in range(10):
        groups, _ = sample_groups(bandits, policy.weights, 8, 8, policy.algorithm, rng)
        for arm, settings in REDUCERS.items():
            found[arm].append(policy.copy(build_algorithm(settings)).learn(groups))
    kept = {arm: np.mean([update.kept_advantage for update in updates]) for arm, updates in found.items()}
    masked = {arm: np.mean([update.masked_share for update in updates]) for arm, updates in found.items()}
    assert [kept[PLAIN], kept["variance_filter"]] == pytest.approx([1, 1], abs=1e-6)
    assert masked[PLAIN] == masked["kl_clipping"] == 0
    assert max(kept["kl_clipping"], kept[BOTH]) < 0.99
    assert min(masked["variance_filter"], masked[BOTH]) > 0


def test_groups_that_teach_nothing_are_sampled_again_for_dapo_and_counted():
    bandits, weights = drawn("answer")
    weights[0, :, END] -= 4  # hardly any response ends
    dapo, plain = build_algorithm(DapoConfig()), build_algorithm(REDUCERS[PLAIN])
    groups, num_sampled = sample_groups(bandits, weights, 8, 4, plain, np.random.default_rng(0))
    again, num_sampled_again = sample_groups(bandits, weights, 8, 4, dapo, np.random.default_rng(0))
    idle, still_idle = (sum(is_uniform(group.rollouts) for group in found) for found in (groups, again))
    assert num_sampled == 32 < num_sampled_again <= 32 * (1 + dapo.max_resamples)
    assert still_idle <= idle
    assert [group.item.id for group in again] == [group.item.id for group in groups]


def test_variance_and_squared_mean_of_gradients_are_unbiased():
    gradients = torch.tensor([[[1.0, 0.0]], [[3.0, 2.0]]], dtype=torch.float64)  # two draws, one step
    # variances 2 and 2; means 2 and 1, whose squares hold half of a variance each
    assert spread(gradients) == pytest.approx((4.0, 4.0 + 1.0 - 2.0))


def test_a_ratio_is_the_geometric_mean_within_its_interval():
    ratio = Ratio.of([float(np.log(0.5)), float(np.log(2.0))])
    assert ratio.value == pytest.approx(1)
    assert ratio.low == pytest.approx(0.5)
    assert ratio.high == pytest.approx(2)


def test_a_race_ends_at_its_target_or_at_the_most_updates():
    plan = Plan(groups=8, most_updates=30, target_share=0.4)
    reached = race("answer", 0, REDUCERS[PLAIN], 0.2, plan)
    given_up = race("answer", 0, REDUCERS[PLAIN], 0.2, replace(plan, most_updates=2))
    assert reached.is_reached
    assert 2 < reached.updates < 30
    assert reached.responses == reached.updates * 64
    assert (given_up.is_reached, given_up.updates, given_up.responses) == (False, 2, 128)
