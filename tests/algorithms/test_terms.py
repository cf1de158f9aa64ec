"""An objective of two terms: each is what it would be alone, and the loss is their weighted sum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.algorithms import build_algorithm
from tests.algorithms.choices import EVERY_VARIANT, VARIANTS

ALGORITHMS = {name: build_algorithm(chosen) for name, chosen in VARIANTS.items()}


def half(batch, is_in):
    """The rows of a batch for which `is_in` (B,) holds, renumbered."""
    numbers = torch.cumsum(is_in.long(), 0) - 1
    chosen = is_in[batch["row"]]
    part = {name: v[is_in] if v.shape == is_in.shape else v[chosen] for name, v in batch.items() if name != "row"}
    return part | {"row": numbers[batch["row"][chosen]]}


@EVERY_VARIANT
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_each_term_is_prepared_as_if_it_were_alone(make_batch, learn, variant, seed):
    algorithm, batch = ALGORITHMS[variant], make_batch(seed)
    if batch["row"].shape == batch["group"].shape:
        return  # columns of rows and of tokens could not be told apart here
    term = (batch["group"] // 10) % 2
    mixed = learn(algorithm, batch | {"term": term, "term_weights": torch.where(term == 1, 3.0, 1.0).double()})
    for number, weight in ((0, 1.0), (1, 3.0)):
        if not (own := term == number).any():
            continue
        alone, found = learn(algorithm, half(batch, own)), half(mixed, own)
        for name in ("advantages", "in_baseline", "in_loss"):
            torch.testing.assert_close(found[name], alone[name])
        torch.testing.assert_close(found["weights"], weight * alone["weights"])


@pytest.mark.parametrize("variant", ["ppo", "grpo_plus", "reinforce_plus_plus"])
def test_a_long_term_does_not_drown_a_short_one(make_batch, learn, variant):
    batch = make_batch(3)
    rows = torch.arange(8)
    batch = {
        "group": rows // 4,
        "term": rows // 4,
        "row": rows.repeat_interleave(torch.tensor([100] * 4 + [2] * 4)),
        "in_loss": torch.ones(8, dtype=torch.bool),
        "rewards": torch.tensor([0.0, 1.0] * 4, dtype=torch.float64),
        "minibatch": torch.zeros(8, dtype=torch.int64),
        "length_limits": torch.full((8,), 100),
    }
    for name in ("old_log_probs", "log_probs", "reference_log_probs", "sampler_log_probs", "entropy", "values"):
        batch[name] = torch.zeros(408, dtype=torch.float64)
    batch["old_values"] = torch.zeros(408, dtype=torch.float64)
    weights = learn(ALGORITHMS[variant], batch)["weights"]
    assert weights[:400].sum().item() == pytest.approx(1, rel=1e-5)
    assert weights[400:].sum().item() == pytest.approx(1, rel=1e-5)


@EVERY_VARIANT
def test_one_term_alone_changes_nothing(make_batch, learn, variant):
    batch = make_batch(1)
    one_term = batch | {"term": torch.zeros_like(batch["group"])}
    plain, one = (learn(ALGORITHMS[variant], given) for given in (batch, one_term))
    for name in ("advantages", "weights", "in_baseline"):
        assert torch.equal(plain[name], one[name])
