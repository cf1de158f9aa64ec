from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import k1, k2, k3

LOG_PROBS = st.floats(-200, 0)


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def test_values_by_hand():
    p, q = one(math.log(0.5)), one(math.log(0.25))  # d = log 1/2
    assert k1(p, q).item() == pytest.approx(math.log(2))
    assert k2(p, q).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(p, q).item() == pytest.approx(0.5 - 1 + math.log(2))


@pytest.mark.parametrize("estimator", [k1, k3])
def test_unbiased_estimators_have_the_divergence_as_mean(estimator):
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    exact = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    assert (p * estimator(p.log(), q.log())).sum().item() == pytest.approx(exact)


@given(LOG_PROBS, LOG_PROBS, st.sampled_from([torch.float32, torch.float64]))
def test_k2_and_k3_are_never_negative_and_always_finite(log_p, log_q, dtype):
    for estimator in (k2, k3):
        value = estimator(torch.tensor([log_p], dtype=dtype), torch.tensor([log_q], dtype=dtype)).item()
        assert 0 <= value < math.inf


@given(LOG_PROBS)
def test_equal_distributions_do_not_diverge(log_p):
    assert [estimator(one(log_p), one(log_p)).item() for estimator in (k1, k2, k3)] == [0.0, 0.0, 0.0]


def test_k3_keeps_its_digits_for_small_differences():
    value = k3(torch.tensor([-1.0 + 2**-12]), torch.tensor([-1.0])).item()  # d = -2^-12, exact in float32
    assert value == pytest.approx(2**-25, rel=1e-3)  # d^2 / 2; e^d - 1 - d in float32 is off by a factor


def test_gradients_are_those_of_the_table():
    for estimator, expected in ((k1, 1.0), (k2, math.log(2)), (k3, 1 - 0.5)):
        log_p = one(math.log(0.5)).requires_grad_()
        estimator(log_p, one(math.log(0.25))).backward()
        assert log_p.grad is not None
        assert log_p.grad.item() == pytest.approx(expected), estimator.__name__
