"""The fused scores are those of the plain formulas, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import entropy
from autoclave.algorithms import token_log_probs as plain_log_probs
from autoclave.models.response_log_probs import token_log_probs

TOKENS = torch.tensor([4, 0, 2])


def logits(seed: int = 0, *, spread: float = 3.0) -> torch.Tensor:
    return spread * torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 2.0]), st.floats(0.01, 100))
def test_values_and_gradients_are_those_of_the_formulas(seed: int, temperature: float, spread: float):
    weights = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found, expected = (logits(seed, spread=spread).requires_grad_() for _ in range(2))
    fused = torch.stack(token_log_probs(found, TOKENS, temperature=temperature, entropy_gradient=True))
    plain = torch.stack(
        [plain_log_probs(expected, TOKENS, temperature=temperature), entropy(expected, temperature=temperature)]
    )
    (fused * weights).sum().backward()
    (plain * weights).sum().backward()
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("entropy_gradient", [True, False])
def test_gradients_agree_with_finite_differences(entropy_gradient: bool):
    def scores(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = token_log_probs(z, TOKENS, temperature=0.7, entropy_gradient=entropy_gradient)
        return found if entropy_gradient else found[:1]

    assert torch.autograd.gradcheck(scores, logits().requires_grad_())


def test_the_gradient_of_entropies_alone():
    found, expected = (logits().requires_grad_() for _ in range(2))
    token_log_probs(found, TOKENS, temperature=0.7, entropy_gradient=True)[1].sum().backward()
    entropy(expected, temperature=0.7).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)


def test_a_token_that_cannot_be_drawn_hurts_neither_value_nor_gradient():
    scores = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    log_probs, entropies = token_log_probs(scores, torch.tensor([0]), temperature=1.0, entropy_gradient=True)
    (log_probs + 100 * entropies).sum().backward()
    assert (log_probs.item(), entropies.item()) == pytest.approx((-math.log(2), math.log(2)))
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.5, -0.5, 0.0]]
    assert token_log_probs(scores, torch.tensor([2]), temperature=1.0)[0].item() == -math.inf


def test_logits_of_low_precision_are_computed_with_in_float32():
    low = torch.randn(3, 500, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    log_probs, entropies = token_log_probs(low, TOKENS, temperature=1.0)
    log_probs.sum().backward()
    assert log_probs.dtype == entropies.dtype == torch.float32
    torch.testing.assert_close(log_probs, plain_log_probs(low, TOKENS))
    assert low.grad is not None
    assert low.grad.dtype == torch.bfloat16
