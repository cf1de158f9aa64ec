"""From judged groups to an update: what trains, by how much, and that its gradient is that of the papers' equations."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import torch

from autoclave.algorithms import Column, build_algorithm
from autoclave.config import GrpoConfig, GrpoPlusConfig, OptimizerConfig
from autoclave.core import FinishReason, Group, MaskReason
from autoclave.training.learning import (
    mask_groups,
    tensors,
    token_ledger,
    trainer_log_probs,
    with_advantages,
    with_rewards,
)
from autoclave.workers import Batch
from autoclave.workers.trainer.actor import ActorWorker
from tests.training_parts import completion, given_gradients, group_of, plain_log_probs, tiny_policy

GRPO_PLUS, GRPO = build_algorithm(GrpoPlusConfig()), build_algorithm(GrpoConfig())
TEMPERATURE = 0.8


def groups() -> list[Group]:
    """Three groups of three: one with a response that was cut, one without a verdict, one that teaches nothing."""
    rng = np.random.default_rng(1)

    def responses(*lengths: int):
        finish = [FinishReason.STOP, FinishReason.LENGTH, FinishReason.STOP]
        return [
            completion(rng.integers(4, 200, size).tolist(), prompt=[2, int(rng.integers(4, 200)), 3], finish_reason=end)
            for size, end in zip(lengths, finish, strict=True)
        ]

    return [
        group_of([1.0, 0.0, 0.0], responses(3, 6, 2), name="a"),
        group_of([0.0, 1.0, None], responses(4, 1, 5), name="b"),
        group_of([1.0, 1.0, 1.0], responses(2, 2, 2), name="c"),
    ]


def packed(algorithm, minibatches: int = 1) -> Batch:
    whole = Batch.from_groups(mask_groups(algorithm, groups()), minibatches=minibatches)
    return with_rewards(algorithm, whole, algorithm.first_state)


def test_the_page_of_columns_has_the_shape_and_dtype_of_each():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "columns.md").read_text(encoding="utf-8")
    listed = {
        Column(name): (size, kind) for name, size, kind in re.findall(r"^\| `(\w+)` \| \((.),\) \| (\w+) ", page, re.M)
    }
    assert {name: size for name, (size, _) in listed.items()} == {c: "B" if c.is_per_row else "N" for c in Column}
    found = {name: column for name, column in tensors(packed(GRPO_PLUS)).items() if name in set(Column)}
    assert len(found) >= 10
    assert {name: str(column.dtype) for name, column in found.items()} == {n: f"torch.{listed[n][1]}" for n in found}


# --- Masks and weights ---------------------------------------------------------------------------------------------


def test_masked_rollouts_say_why_and_groups_stay_whole():
    masked = mask_groups(GRPO_PLUS, groups())
    assert [[rollout.mask_reason for rollout in group.rollouts] for group in masked] == [
        [None, MaskReason.OVERLONG, None],
        [None, MaskReason.OVERLONG, MaskReason.NO_VERDICT],
        [None, MaskReason.OVERLONG, None],
    ]
    assert [group.item.id for group in masked] == ["a", "b", "c"]


def test_weights_are_fixed_before_rows_are_left_out():
    batch = packed(GRPO_PLUS)
    # Trained: 3 + 2 tokens of a, 4 of b, 2 + 2 of c. Those of b and c cannot move the policy, yet they count.
    assert batch.rows["computes"].tolist() == [True, False, True] + [False] * 6
    weights = batch.responses["weights"]
    assert weights[batch.response_rows == 0].tolist() == pytest.approx([1 / 13] * 3)
    assert weights.sum() == pytest.approx(1.0)
    assert set(weights[~batch.rows["in_loss"][batch.response_rows]]) == {0.0}


def test_a_kl_term_needs_every_row_that_trains():
    batch = packed(GRPO)
    assert batch.rows["computes"].tolist() == batch.rows["in_loss"].tolist() == [True] * 5 + [False] + [True] * 3


def test_the_trainers_log_probs_go_back_to_the_rollouts_that_were_computed():
    whole = packed(GRPO_PLUS)  # of 9 rollouts the first and the third can move the policy: 3 and 2 tokens
    computed = whole.select(whole.rows["computes"]).with_responses(old_log_probs=np.arange(5, dtype=np.float32))
    first, second, third, *others = trainer_log_probs(whole, computed)
    assert (first.tolist(), second, third.tolist(), others) == ([0.0, 1.0, 2.0], None, [3.0, 4.0], [None] * 6)


def test_where_no_rollout_was_computed_none_has_log_probs_of_the_trainer():
    whole = packed(GRPO_PLUS).with_rows(computes=np.zeros(9, dtype=bool))
    computed = whole.select(whole.rows["computes"]).with_responses(old_log_probs=np.zeros(0, dtype=np.float32))
    assert trainer_log_probs(whole, computed) == [None] * 9


def test_each_minibatch_has_weights_of_its_own():
    batch = packed(GRPO_PLUS, minibatches=3)
    for number in range(3):
        inside = batch.rows["minibatch"][batch.response_rows] == number
        assert batch.responses["weights"][inside].sum() == pytest.approx(1.0)


def test_advantages_compare_a_rollout_with_the_trained_ones_of_its_group():
    batch = packed(GRPO_PLUS)
    entries = token_ledger(batch, with_advantages(GRPO_PLUS, batch.select(batch.rows["computes"])))
    # a: 1 and 0, mean 1/2, sample deviation sqrt(1/2); b: one reward; c: equal rewards.
    expected = [math.sqrt(0.5), None, -math.sqrt(0.5), 0, None, None, 0, None, 0]
    assert [entry.advantage for entry in entries] == pytest.approx(expected, abs=1e-5)


def test_no_groups_need_no_weights():
    batch = with_rewards(GRPO_PLUS, Batch.from_groups([], minibatches=2), GRPO_PLUS.first_state)
    assert len(batch) == len(token_ledger(batch, with_advantages(GRPO_PLUS, batch))) == 0


# --- The gradient --------------------------------------------------------------------------------------------------


def reference_gradient(algorithm_name: str, batch: Batch) -> torch.Tensor:
    """The gradient of the loss, written as a loop over groups, rollouts and tokens, from the papers."""
    policy = tiny_policy(dtype=torch.float64)
    masked = mask_groups(GRPO_PLUS if algorithm_name == "grpo_plus" else GRPO, groups())
    trained = [rollout for group in masked for rollout in group.rollouts if rollout.is_trained]
    old, reference = (batch.responses[name].tolist() for name in ("old_log_probs", "reference_log_probs"))
    total, token = torch.zeros((), dtype=torch.float64), 0
    for group in masked:
        rewards = [rollout.reward.value for rollout in group.rollouts if rollout.is_trained]
        spread = stdev(rewards) if len(rewards) > 1 else 0.0
        for rollout in group.rollouts:
            response = rollout.last.tokens
            log_probs = plain_log_probs(policy, rollout.last.prompt_tokens, response, TEMPERATURE)
            for log_prob in log_probs:
                if rollout.is_trained:
                    advantage = (rollout.reward.value - mean(rewards)) / (spread + 1e-6)
                    ratio = (log_prob - old[token]).exp()
                    if algorithm_name == "grpo_plus":  # clip-higher, mean over tokens
                        bounds, share = (0.8, 1.28), 1 / sum(len(r.last.tokens) for r in trained)
                    else:  # symmetric clip, mean over responses of the mean over tokens, KL by k3
                        bounds, share = (0.8, 1.2), 1 / (len(trained) * len(response))
                    loss = -torch.min(ratio * advantage, ratio.clamp(*bounds) * advantage)
                    if algorithm_name == "grpo":
                        distance = reference[token] - log_prob
                        loss = loss + 0.04 * (distance.exp() - 1 - distance)
                    total = total + share * loss
                token += 1
    total.backward()
    return torch.cat([weights.grad.flatten() for weights in policy.model.parameters()])


def with_log_probs(batch: Batch) -> Batch:
    """Log-probs of the old and the reference policy near those of the fresh one, some of them beyond the clip."""
    policy, rng, scores = tiny_policy(), np.random.default_rng(2), []
    for row in range(len(batch)):
        one = batch.select(np.array([row]))
        prompt, response = np.split(one.tokens, [int(one.prompt_lengths[0])])
        scores.append(plain_log_probs(policy, prompt, response, TEMPERATURE).detach().numpy())
    fresh = np.concatenate(scores)
    noisy = [(fresh + rng.normal(0, 0.3, len(fresh))).astype(np.float32) for _ in range(2)]
    return batch.with_responses(old_log_probs=noisy[0], reference_log_probs=noisy[1])


@pytest.mark.parametrize("algorithm", [GRPO_PLUS, GRPO], ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("micro_batch_tokens", [1, 1 << 20])
def test_the_gradient_of_an_update_is_that_of_a_loop_over_tokens(algorithm, micro_batch_tokens):
    batch = with_log_probs(packed(algorithm))
    policy = tiny_policy(dtype=torch.float64)
    actor = ActorWorker(
        policy,
        algorithm,
        OptimizerConfig(gradient_clip=1e9),
        total_steps=1,
        temperature=TEMPERATURE,
        micro_batch_tokens=micro_batch_tokens,
    )
    with given_gradients(policy.model.parameters()) as gradients:
        metrics = actor.update(batch.select(batch.rows["computes"]), 1)
    (found,) = gradients
    expected = reference_gradient(algorithm.name, batch)
    assert expected.norm() > 0.01
    assert (found - expected).abs().max() < 1e-7 * expected.abs().max()
    assert metrics["gradient_norm"] == pytest.approx(expected.norm().item(), rel=1e-6)
