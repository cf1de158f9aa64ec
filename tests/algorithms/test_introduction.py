"""The three changes of GRPO+ as the thesis's introduction names them, by our formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import build_algorithm, entropy_until_saturation, group_trust, k3, without_dominant
from autoclave.config import GrpoPlusConfig

ONE_STEP = torch.zeros(4, dtype=torch.int64)
ALL = torch.ones(4, dtype=torch.bool)


def rows_of(*lengths: int) -> torch.Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


# --- Relative-KL clipping ------------------------------------------------------------------------------------------


def test_a_group_that_has_moved_too_far_is_scaled_down_and_no_other():
    group, row = torch.tensor([7, 7, 3]), torch.tensor([0, 1, 2])
    old, now = torch.zeros(3), torch.tensor([math.log(2.0), 0.0, 0.0])
    # group 7: k3 of one token at r = 2 is 2 - 1 - log 2, the other 0; the mean is half of that
    divergence = (1 - math.log(2)) / 2
    found = group_trust(old, now, group, row, limit=0.1)
    assert found.tolist() == pytest.approx([0.1 / divergence, 0.1 / divergence, 1.0])


@given(st.integers(0, 10_000), st.floats(1e-4, 1.0))
def test_the_scaled_divergence_of_no_group_exceeds_the_limit(make_batch, seed, limit):
    batch = make_batch(seed)
    factors = group_trust(batch["old_log_probs"], batch["log_probs"], batch["group"], batch["row"], limit=limit)
    assert ((factors > 0) & (factors <= 1)).all()
    divergence = k3(batch["old_log_probs"], batch["log_probs"])
    for group in batch["group"].unique():
        inside = batch["group"][batch["row"]] == group
        assert len(factors[inside].unique()) == 1
        assert (factors * divergence)[inside].mean().item() <= limit * (1 + 1e-9)


def test_a_policy_that_has_not_moved_is_trusted():
    algorithm = build_algorithm(GrpoPlusConfig(reading="introduction"))
    old = torch.tensor([-1.0, -2.0])
    columns = {
        "advantages": torch.tensor([1.0, -1.0]), "old_log_probs": old, "step_log_probs": old,
        "group": torch.tensor([0, 0]), "row": torch.tensor([0, 1]),
    }  # fmt: skip
    assert algorithm.trust(columns)["advantages"].tolist() == [1.0, -1.0]
    moved = algorithm.trust({**columns, "step_log_probs": old + 0.5})["advantages"]
    assert moved.tolist() == pytest.approx([0.01 / (math.exp(0.5) - 1.5), -0.01 / (math.exp(0.5) - 1.5)])
    assert build_algorithm(GrpoPlusConfig()).trust(columns) == columns


# --- Length-scaled variance ----------------------------------------------------------------------------------------


def test_a_response_that_dominates_by_its_length_is_dropped():
    # |o| A^2 = 1, 1, 1, 7: the last holds 0.7 of the variance. At the mean length 2.5 it would hold 2.5 / 5.5 = 0.45.
    advantages = torch.ones(10)
    assert without_dominant(advantages, rows_of(1, 1, 1, 7), ALL, ONE_STEP, limit=0.6).tolist() == [True] * 3 + [False]
    assert without_dominant(advantages, rows_of(1, 1, 1, 7), ALL, ONE_STEP, limit=0.7).all()
    assert without_dominant(advantages, rows_of(1, 1, 1, 7), ALL, ONE_STEP, limit=0.4).all()  # it would do so anyway


def test_a_rare_success_of_common_length_stays():
    advantages = torch.tensor([1.5, 1.5, -0.5, -0.5, -0.5, -0.5, -0.5, -0.5])
    assert without_dominant(advantages, rows_of(2, 2, 2, 2), ALL, ONE_STEP, limit=0.25).all()


def test_optimizer_steps_are_judged_apart():
    minibatch = torch.tensor([0, 0, 0, 1])
    assert without_dominant(torch.ones(10), rows_of(1, 1, 1, 7), ALL, minibatch, limit=0.6).all()


@given(st.integers(0, 10_000), st.floats(0.01, 1))
def test_only_long_rows_that_train_are_dropped(make_batch, seed, limit):
    batch = make_batch(seed)
    advantages = batch["rewards"].nan_to_num()[batch["row"]] - 0.5
    kept = without_dominant(advantages, batch["row"], batch["in_loss"], batch["minibatch"], limit=limit)
    assert not (kept & ~batch["in_loss"]).any()
    lengths = torch.bincount(batch["row"], minlength=len(kept)).double()
    dropped = batch["in_loss"] & ~kept
    assert (lengths[dropped] > lengths[batch["in_loss"]].mean()).all() or not dropped.any()
    assert torch.equal(
        without_dominant(advantages, batch["row"], batch["in_loss"], batch["minibatch"], limit=1.0), batch["in_loss"]
    )


# --- Entropy until saturation --------------------------------------------------------------------------------------


def run(entropies, *, steps: int = 2, tolerance: float = 0.1):
    state = (0.5,)
    for entropy in entropies:
        state = entropy_until_saturation(state, {"entropy": entropy}, steps=steps, tolerance=tolerance)
    return state


def test_the_bonus_stays_while_entropy_moves():
    assert run([4.0, 3.0, 2.0]) == (0.5, 4.0, 3.0, 2.0)  # not enough seen yet
    assert run([4.0, 3.0, 2.0, 1.0]) == (0.5, 4.0, 3.0, 2.0, 1.0)
    assert run([4.0, 3.0, 2.0, 1.0, 0.5]) == (0.5, 3.0, 2.0, 1.0, 0.5)


def test_the_bonus_ends_for_good_once_entropy_settles():
    assert run([4.0, 2.0, 2.0, 2.1, 1.9]) == (0.0,)  # means 2 and 2
    assert run([4.0, 2.0, 2.0, 2.1, 1.9, 9.0, 1.0]) == (0.0,)


def test_a_step_without_trained_tokens_says_nothing():
    assert entropy_until_saturation((0.5, 1.0), {}, steps=2, tolerance=0.1) == (0.5, 1.0)


@given(st.lists(st.floats(0, 20), max_size=30), st.integers(1, 5))
def test_the_state_is_bounded_and_the_coefficient_never_returns(entropies, steps):
    state = run(entropies, steps=steps)
    assert state[0] in (0.0, 0.5)
    assert len(state) <= 1 + 2 * steps
