from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import budget_mean, sequence_mean, sequence_sum, token_mean

WEIGHTINGS = pytest.mark.parametrize("weighting", [token_mean, sequence_mean])
ROW = torch.tensor([0, 1, 1, 1, 2, 2])
IN_LOSS = torch.tensor([True, True, False])


def test_token_mean_gives_every_trained_token_the_same_weight():
    assert token_mean(ROW, IN_LOSS).tolist() == [0.25, 0.25, 0.25, 0.25, 0.0, 0.0]


def test_sequence_mean_gives_every_trained_response_the_same_weight():
    sixth = 1 / 6  # two responses, 1/2 each; the second has three tokens
    assert sequence_mean(ROW, IN_LOSS).tolist() == pytest.approx([0.5, sixth, sixth, sixth, 0.0, 0.0])


def test_sequence_sum_gives_every_token_the_share_of_its_response():
    assert sequence_sum(ROW, IN_LOSS).tolist() == [0.5, 0.5, 0.5, 0.5, 0.0, 0.0]


def test_budget_mean_divides_by_what_could_have_been_said():
    assert budget_mean(ROW, IN_LOSS, torch.tensor([8, 16, 8])).tolist() == [1 / 16, *[1 / 32] * 3, 0.0, 0.0]


@given(seed=st.integers(0, 10_000))
def test_no_response_gains_by_its_length_in_the_budget_mean(make_batch, seed):
    batch = make_batch(seed)
    weights = budget_mean(batch["row"], batch["in_loss"], batch["length_limits"])
    assert len(weights[weights > 0].unique()) <= 1
    assert weights.sum().item() <= 1 + 1e-6
    torch.testing.assert_close(7 * weights, sequence_sum(batch["row"], batch["in_loss"]))


def test_a_trained_row_without_tokens_is_no_sequence():
    assert sequence_mean(torch.tensor([0]), torch.tensor([True, True])).tolist() == [1.0]


@WEIGHTINGS
def test_weights_are_zero_if_nothing_trains(weighting):
    assert weighting(ROW, torch.zeros(3, dtype=torch.bool)).tolist() == [0.0] * 6


@WEIGHTINGS
@given(seed=st.integers(0, 10_000))
def test_weights_make_a_mean(make_batch, weighting, seed):
    batch = make_batch(seed)
    weights = weighting(batch["row"], batch["in_loss"])
    assert weights.dtype == torch.float32
    assert weights.sum().item() == pytest.approx(float(batch["in_loss"].any()), abs=1e-6)
    assert torch.equal(weights > 0, batch["in_loss"][batch["row"]])


@WEIGHTINGS
@given(seed=st.integers(0, 10_000), random=st.randoms(use_true_random=False))
def test_packing_order_does_not_matter(make_batch, weighting, seed, random):
    batch = make_batch(seed)
    order = list(range(len(batch["row"])))
    random.shuffle(order)
    weights = weighting(batch["row"], batch["in_loss"])
    assert torch.equal(weighting(batch["row"][order], batch["in_loss"]), weights[order])
