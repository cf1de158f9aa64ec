from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import entropy, token_log_probs

QUARTERS = torch.tensor([[0.5, 0.25, 0.25]]).log()


def test_values_by_hand():
    assert token_log_probs(QUARTERS, torch.tensor([1])).item() == pytest.approx(math.log(0.25))
    assert entropy(QUARTERS).item() == pytest.approx(1.5 * math.log(2))  # 1/2 * 1 bit + 2 * 1/4 * 2 bits


def test_temperature_flattens_the_distribution():
    # squares of the weights 2 : 1 : 1 at temperature 1/2 are 4 : 1 : 1
    assert token_log_probs(QUARTERS, torch.tensor([0]), temperature=0.5).exp().item() == pytest.approx(4 / 6)
    assert entropy(QUARTERS, temperature=1e6).item() == pytest.approx(math.log(3))


def test_a_token_that_cannot_be_sampled_hurts_neither_value_nor_gradient():
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    undecided = entropy(logits)
    undecided.sum().backward()
    assert undecided.item() == pytest.approx(math.log(2))
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0, 0.0]]  # entropy is largest here
    assert token_log_probs(logits, torch.tensor([2])).item() == -math.inf


def test_logits_of_low_precision_are_computed_with_in_float32():
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    tokens = torch.tensor([0, 1, 2, 3])
    assert torch.equal(token_log_probs(logits, tokens), token_log_probs(logits.float(), tokens))
    assert torch.equal(entropy(logits), entropy(logits.float()))
    assert entropy(logits).dtype == torch.float32


@given(st.integers(0, 10_000), st.floats(-1e4, 1e4, width=32), st.integers(1, 6))
def test_chunks_and_shifts_change_nothing(seed, shift, size):
    generator = torch.Generator().manual_seed(seed)
    logits = 10 * torch.randn(6, 11, generator=generator, dtype=torch.float64)
    tokens = torch.randint(0, 11, (6,), generator=generator)
    pieces = list(zip(logits.split(size), tokens.split(size), strict=True))
    whole = token_log_probs(logits, tokens)
    assert torch.equal(torch.cat([token_log_probs(*piece) for piece in pieces]), whole)
    assert torch.equal(torch.cat([entropy(piece) for piece, _ in pieces]), entropy(logits))
    torch.testing.assert_close(token_log_probs(logits + shift, tokens), whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(entropy(logits + shift), entropy(logits), rtol=0, atol=1e-9)


@given(st.integers(0, 10_000), st.floats(0.01, 1000))
def test_entropy_lies_between_certainty_and_equal_chances(seed, spread):
    logits = spread * torch.randn(5, 13, generator=torch.Generator().manual_seed(seed))
    found = entropy(logits)
    assert found.min().item() >= -1e-6
    assert found.max().item() <= math.log(13) + 1e-6


def test_gradients_agree_with_finite_differences():
    logits = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    tokens = torch.tensor([4, 0, 2])
    assert torch.autograd.gradcheck(lambda z: (token_log_probs(z, tokens, temperature=0.7), entropy(z)), logits)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"must be \(N, V\) and tokens"):
        token_log_probs(torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"must be \(N, V\)"):
        entropy(torch.zeros(3))
    with pytest.raises(ValueError, match="temperature = 0: must be above 0"):
        entropy(torch.zeros(2, 3), temperature=0)
