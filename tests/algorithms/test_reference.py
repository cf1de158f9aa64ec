"""Every algorithm against a second implementation in float64: token by token, from the papers (`reference.py`)."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.algorithms import build_algorithm, step_metrics
from autoclave.config import GrpoPlusConfig
from tests.algorithms.choices import EVERY_VARIANT, VARIANTS
from tests.algorithms.reference import reference


@EVERY_VARIANT
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_loss_and_gradient_are_those_of_the_equations(make_batch, learn, variant, seed):
    algorithm = build_algorithm(VARIANTS[variant])
    expected = reference(VARIANTS[variant], make_batch(seed))
    batch = learn(algorithm, make_batch(seed))
    found = algorithm.loss(batch)
    found.total.backward()
    assert batch["advantages"].tolist() == pytest.approx(expected.advantages, abs=1e-9)
    assert batch["weights"].tolist() == pytest.approx(expected.weights, rel=1e-6)
    assert found.total.item() == pytest.approx(expected.loss, rel=1e-6, abs=1e-6)
    assert gradient(batch["log_probs"]) == pytest.approx(expected.by_log_prob, rel=1e-6, abs=1e-9)
    assert gradient(batch["entropy"]) == pytest.approx(expected.by_entropy, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("variant", [name for name, chosen in VARIANTS.items() if chosen.needs_critic])
@given(seed=st.integers(0, 10_000))
def test_the_loss_of_the_critic_is_that_of_the_equations(make_batch, learn, variant, seed):
    algorithm = build_algorithm(VARIANTS[variant])
    expected = reference(VARIANTS[variant], make_batch(seed))
    batch = learn(algorithm, make_batch(seed))
    found = algorithm.critic_loss(batch)
    found.total.backward()
    trained = batch["in_loss"][batch["row"]]
    assert batch["returns"][trained].tolist() == pytest.approx(
        torch.tensor(expected.returns)[trained].tolist(), rel=1e-5, abs=1e-5
    )
    assert found.total.item() == pytest.approx(expected.critic_loss, rel=1e-6, abs=1e-6)
    assert gradient(batch["values"]) == pytest.approx(expected.by_value, rel=1e-6, abs=1e-9)


def gradient(leaf: torch.Tensor) -> list[float]:
    return [0.0] * len(leaf) if leaf.grad is None else leaf.grad.tolist()


def test_a_step_of_grpo_plus_by_hand():
    """One group: a solved response of one token (r = 1.5), an unsolved one of three (r = 1, 1, 0.5).

    Advantages are +-sqrt(1/2) =: +-a. Token losses: -1.28a (clipped), a, a, 0.8a (clipped). Mean: 1.52a / 4.
    """
    algorithm = build_algorithm(GrpoPlusConfig())
    columns = {
        "rewards": torch.tensor([1.0, 0.0]),
        "group": torch.tensor([0, 0]),
        "in_loss": torch.tensor([True, True]),
        "row": torch.tensor([0, 1, 1, 1]),
        "log_probs": torch.tensor([1.5, 1.0, 1.0, 0.5]).log(),
        "old_log_probs": torch.zeros(4),
    }
    found = algorithm.loss(algorithm.prepare(columns))
    assert found.total.item() == pytest.approx(1.52 * sqrt(0.5) / 4, abs=1e-5)
    metrics = step_metrics([found.diagnostics])
    assert metrics["clip_fraction_upper"] == metrics["clip_fraction_lower"] == 0.25
    assert metrics["ratio_max"] == pytest.approx(1.5)
