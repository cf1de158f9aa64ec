from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import (
    clipped_policy_loss,
    controlled_entropy_bonus,
    entropy_bonus,
    kl_penalty,
    policy_gradient_loss,
    sequence_clipped_policy_loss,
    value_loss,
    weighted_policy_loss,
)

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
    penalty = kl_penalty(p, q, coefficient=0.1, estimator="k1")
    assert penalty.loss.item() == pytest.approx(0.1 * math.log(2))
    assert penalty.means["reference_kl"].item() == pytest.approx(math.log(2))
    bonus = entropy_bonus(torch.tensor([3.0]), coefficient=0.1)
    assert bonus.loss.item() == pytest.approx(-0.3)
    assert bonus.means["entropy"].item() == 3.0


# --- The other losses ----------------------------------------------------------------------------------------------


def gradient_of(loss, ratios: list[float], *rest, **options):
    """A loss of tokens with these ratios to probability 1, and its gradient by their log-probs."""
    log_probs = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    found = loss(log_probs, torch.zeros_like(log_probs), *rest, **options)
    found.loss.sum().backward()
    assert log_probs.grad is not None
    return found, log_probs.grad.tolist()


def test_the_dual_clip_bounds_what_a_negative_advantage_pulls():
    advantages = torch.tensor([-1.0, -1.0, 1.0]).double()
    found, gradient = gradient_of(clipped_policy_loss, [5.0, 2.0, 5.0], advantages, **CLIP, dual_clip=3.0)
    assert found.loss.tolist() == pytest.approx([3.0, 2.0, -1.28])
    assert gradient == pytest.approx([0.0, 2.0, 0.0])
    assert found.means["clip_fraction_dual"].tolist() == [1.0, 0.0, 0.0]


def test_a_response_has_one_ratio_and_each_token_a_gradient():
    advantages, row = torch.tensor([1.0, 1.0, 2.0]).double(), torch.tensor([0, 0, 1])
    options = {"clip_lower": 0.5, "clip_upper": 1.0}
    found, gradient = gradient_of(sequence_clipped_policy_loss, [4.0, 0.25, 4.0], advantages, row, **options)
    # geometric means 1 and 4; the second response is clipped at 2
    assert found.loss.tolist() == pytest.approx([-1.0, -1.0, -4.0])
    assert gradient == pytest.approx([-1.0, -1.0, 0.0])
    assert found.means["clip_fraction_upper"].tolist() == [0.0, 0.0, 1.0]


def test_a_far_token_keeps_a_bounded_pull_in_the_weighted_loss():
    advantages = torch.tensor([2.0, -1.0, 1.0]).double()
    found, gradient = gradient_of(weighted_policy_loss, [9.0, 0.5, 1.0], advantages, clip_lower=1.0, clip_upper=4.0)
    assert gradient == pytest.approx([-10.0, 0.5, -1.0])  # -min(r, 5) A
    assert found.means["clip_fraction_upper"].tolist() == [1.0, 0.0, 0.0]
    assert found.loss[0].item() == pytest.approx(-10 * math.log(9))


def test_the_plain_policy_gradient_does_not_look_at_the_old_policy():
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    found = policy_gradient_loss(log_probs, torch.tensor([2.0, -1.0]))
    found.loss.sum().backward()
    assert (found.loss.tolist(), log_probs.grad.tolist()) == ([2.0, -2.0], [-2.0, 1.0])


def test_a_value_is_pulled_to_the_return_until_it_has_moved_by_the_clip():
    values = torch.tensor([1.0, 1.0, 0.1], requires_grad=True)
    found = value_loss(values, torch.tensor([0.0, 3.0, 0.0]), torch.tensor([3.0, 2.0, 1.0]), clip=0.5)
    found.loss.sum().backward()
    # clipped values 0.5, 2.5, 0.1: the first is further from its return than the value itself, the second nearer
    assert found.loss.tolist() == pytest.approx([2.5**2 / 2, 0.5, 0.9**2 / 2])
    assert values.grad.tolist() == pytest.approx([0.0, -1.0, -0.9])
    assert found.means["value_clip_fraction"].tolist() == [1.0, 0.0, 0.0]
    assert found.means["value_error"].tolist() == pytest.approx([4.0, 1.0, 0.81])


def test_without_a_clip_the_loss_of_a_value_is_half_a_square():
    assert value_loss(torch.ones(1), torch.zeros(1), torch.tensor([3.0]), clip=None).loss.item() == 2.0


def test_a_controlled_bonus_has_a_coefficient_per_token():
    bonus = controlled_entropy_bonus(torch.tensor([3.0, 3.0]), torch.tensor([0.1, 0.0]))
    assert bonus.loss.tolist() == pytest.approx([-0.3, 0.0])


@given(st.integers(0, 10_000))
def test_the_policy_gradient_of_a_response_of_one_token_is_alike_for_sequence_and_token_clip(make_batch, seed):
    batch = make_batch(seed)
    advantages, row = batch["old_values"], torch.arange(len(batch["row"]))
    columns = batch["log_probs"], batch["old_log_probs"], advantages
    of_tokens, of_rows = clipped_policy_loss(*columns, **CLIP), sequence_clipped_policy_loss(*columns, row, **CLIP)
    torch.testing.assert_close(of_rows.loss, of_tokens.loss)
    assert torch.equal(of_rows.means["clip_fraction_upper"], of_tokens.means["clip_fraction_upper"])


def test_losses_of_columns_of_different_shape_are_refused():
    one, two = torch.zeros(1), torch.zeros(2)
    for refused in (
        lambda: policy_gradient_loss(two, one),
        lambda: weighted_policy_loss(two, two, one, **CLIP),
        lambda: sequence_clipped_policy_loss(two, two, two, one.long(), **CLIP),
        lambda: value_loss(two, one, two, clip=0.2),
    ):
        with pytest.raises(ValueError, match="one shape"):
            refused()
