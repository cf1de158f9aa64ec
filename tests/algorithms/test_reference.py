"""GRPO and GRPO+ against a second implementation: plain Python, token by token, gradients derived by hand."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import build_algorithm, step_metrics
from autoclave.config.algorithm import GrpoConfig, GrpoPlusConfig

KL, ENTROPY = 0.04, 0.01


@dataclass
class Expected:
    total: float
    by_log_prob: list[float]
    by_entropy: list[float]


def advantage(batch, rollout: int) -> float:
    """(r - mean) / (sample deviation + 1e-6) among the trained rollouts of the group."""
    if not batch["trains"][rollout]:
        return 0.0
    group = batch["group"].tolist()
    rewards = [
        reward
        for reward, name, trains in zip(batch["rewards"].tolist(), group, batch["trains"].tolist(), strict=True)
        if trains and name == group[rollout]
    ]
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / max(1, len(rewards) - 1)
    return (batch["rewards"][rollout].item() - mean) / (sqrt(variance) + 1e-6)


def surrogate(ratio: float, gain: float, lower: float, upper: float) -> tuple[float, float]:
    """-min(r A, clip(r) A) and its derivative by log r."""
    clipped = min(max(ratio, lower), upper)
    if clipped * gain < ratio * gain:
        return -clipped * gain, 0.0
    return -ratio * gain, -ratio * gain


def reference(batch, *, lower: float, upper: float, kl: float, entropy: float, by_sequence: bool) -> Expected:
    rows = batch["row"].tolist()
    trained = [rollout for rollout in range(len(batch["group"])) if batch["trains"][rollout]]
    num_tokens = sum(row in trained for row in rows)
    expected = Expected(0.0, [0.0] * len(rows), [0.0] * len(rows))
    for token, row in enumerate(rows):
        if row not in trained:
            continue
        weight = 1 / (len(trained) * rows.count(row)) if by_sequence else 1 / num_tokens
        new, old, base = (batch[name][token].item() for name in ("log_probs", "old_log_probs", "reference_log_probs"))
        loss, slope = surrogate(exp(new - old), advantage(batch, row), lower, upper)
        k3 = exp(base - new) - (base - new) - 1
        expected.total += weight * (loss + kl * k3 - entropy * batch["entropy"][token].item())
        expected.by_log_prob[token] = weight * (slope + kl * (1 - exp(base - new)))
        expected.by_entropy[token] = -weight * entropy
    return expected


CASES = {
    "grpo": (
        GrpoConfig(kl_coefficient=KL, entropy_coefficient=ENTROPY),
        {"lower": 0.8, "upper": 1.2, "kl": KL, "entropy": ENTROPY, "by_sequence": True},
    ),
    "grpo without penalties": (
        GrpoConfig(kl_coefficient=0.0, clip=0.1),
        {"lower": 0.9, "upper": 1.1, "kl": 0.0, "entropy": 0.0, "by_sequence": True},
    ),
    "grpo_plus": (
        GrpoPlusConfig(),
        {"lower": 0.8, "upper": 1.28, "kl": 0.0, "entropy": 0.0, "by_sequence": False},
    ),
}


@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 10_000))
def test_total_and_gradient_are_those_of_the_equation(make_batch, learn, case, seed):
    config, options = CASES[case]
    algorithm = build_algorithm(config)
    expected = reference(make_batch(seed), **options)
    batch = learn(algorithm, make_batch(seed))
    found = algorithm.loss(batch)
    found.total.backward()
    assert found.total.item() == pytest.approx(expected.total, abs=1e-6)
    assert batch["log_probs"].grad.tolist() == pytest.approx(expected.by_log_prob, abs=1e-6)
    if algorithm.needs_entropy:
        assert batch["entropy"].grad.tolist() == pytest.approx(expected.by_entropy, abs=1e-7)


def test_a_step_of_grpo_plus_by_hand():
    """One group: a solved response of one token (r = 1.5), an unsolved one of three (r = 1, 1, 0.5).

    Advantages are +-sqrt(1/2) =: +-a. Token losses: -1.28a (clipped), a, a, 0.8a (clipped). Mean: 1.52a / 4.
    """
    algorithm = build_algorithm(GrpoPlusConfig())
    columns = {
        "rewards": torch.tensor([1.0, 0.0]),
        "group": torch.tensor([0, 0]),
        "trains": torch.tensor([True, True]),
        "row": torch.tensor([0, 1, 1, 1]),
        "log_probs": torch.tensor([1.5, 1.0, 1.0, 0.5]).log(),
        "old_log_probs": torch.zeros(4),
    }
    columns["advantages"] = algorithm.advantages(columns)
    columns["weights"] = algorithm.weights(columns["row"], columns["trains"])
    found = algorithm.loss(columns)
    assert found.total.item() == pytest.approx(1.52 * sqrt(0.5) / 4, abs=1e-5)
    metrics = step_metrics([found.diagnostics])
    assert metrics["clip_fraction_upper"] == metrics["clip_fraction_lower"] == 0.25
    assert metrics["ratio_max"] == pytest.approx(1.5)
