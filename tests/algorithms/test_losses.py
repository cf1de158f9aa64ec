from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import clipped_policy_loss, entropy_bonus, k1, kl_penalty

CLIP = {"clip_lower": 0.2, "clip_upper": 0.28}


def policy_loss(ratios: list[float], advantages: list[float]):
    """The clipped loss of tokens with these ratios, and its gradient by their log-probs."""
    log_probs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    found = clipped_policy_loss(log_probs, torch.zeros_like(log_probs), torch.tensor(advantages).double(), **CLIP)
    found.loss.sum().backward()
    assert log_probs.grad is not None
    return found, log_probs.grad.tolist()


def test_a_token_inside_the_trust_region_is_pulled():
    found, gradient = policy_loss([1.1, 0.9], [2.0, -2.0])
    assert found.loss.tolist() == pytest.approx([-2.2, 1.8])
    assert gradient == pytest.approx([-2.2, 1.8])  # d(-rA) / d log p = -rA


def test_a_token_that_has_moved_far_enough_is_let_go():
    found, gradient = policy_loss([1.3, 0.7], [2.0, -2.0])
    assert found.loss.tolist() == pytest.approx([-2.56, 1.6])  # -1.28 * 2, 0.8 * 2
    assert gradient == [0.0, 0.0]
    assert found.means["clip_fraction_upper"].tolist() == [1.0, 0.0]
    assert found.means["clip_fraction_lower"].tolist() == [0.0, 1.0]


def test_a_token_that_moved_the_wrong_way_is_pulled_back():
    found, gradient = policy_loss([0.5, 2.0], [1.0, -1.0])
    assert found.loss.tolist() == pytest.approx([-0.5, 2.0])
    assert gradient == pytest.approx([-0.5, 2.0])
    assert not any(found.means[f"clip_fraction_{side}"].any() for side in ("lower", "upper"))


def test_what_is_observed_beside_the_loss():
    found, _ = policy_loss([1.0, 2.0], [1.0, 1.0])
    # k3 of KL(old || new) at r = 2: r - 1 - log r
    assert found.means["approx_kl"].tolist() == pytest.approx([0.0, 1 - math.log(2)])
    assert found.maxima["ratio_max"].tolist() == pytest.approx([1.0, 2.0])
    assert not any(values.requires_grad for values in (found.means | found.maxima).values())


@given(st.integers(0, 10_000))
def test_on_policy_the_gradient_is_that_of_reinforce(make_batch, seed):
    log_probs = make_batch(seed)["old_log_probs"].requires_grad_()
    advantages = make_batch(seed)["entropy"] - 1
    clipped_policy_loss(log_probs, log_probs.detach(), advantages, **CLIP).loss.sum().backward()
    assert log_probs.grad is not None
    assert torch.equal(log_probs.grad, -advantages)  # of -A log p


@given(st.floats(-(2.0**100), 0, width=32), st.floats(-(2.0**100), 0, width=32), st.floats(-10, 10, width=32))
def test_no_log_probs_make_loss_or_gradient_infinite(new, old, advantage):
    log_probs = torch.tensor([new], requires_grad=True)
    found = clipped_policy_loss(log_probs, torch.tensor([old]), torch.tensor([advantage]), **CLIP)
    found.loss.sum().backward()
    assert log_probs.grad is not None
    assert all(values.isfinite().all() for values in (found.loss, log_probs.grad, *found.means.values()))


def test_columns_of_different_shape_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        clipped_policy_loss(torch.zeros(3), torch.zeros(3), torch.zeros(1), **CLIP)


def test_penalty_and_bonus_are_scaled_in_the_loss_but_not_in_the_metric():
    p, q = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    penalty = kl_penalty(p, q, coefficient=0.1, estimator=k1)
    assert penalty.loss.item() == pytest.approx(0.1 * math.log(2))
    assert penalty.means["reference_kl"].item() == pytest.approx(math.log(2))
    bonus = entropy_bonus(torch.tensor([3.0]), coefficient=0.1)
    assert bonus.loss.item() == pytest.approx(-0.3)
    assert bonus.means["entropy"].item() == 3.0
