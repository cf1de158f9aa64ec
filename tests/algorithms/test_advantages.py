from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import group_advantages, group_token_advantages, rows_with_signal
from autoclave.algorithms.advantages import group_statistics

ONE_GROUP = torch.zeros(4, dtype=torch.int64)
ALL = torch.ones(4, dtype=torch.bool)


def test_one_success_among_four_stands_out():
    advantages = group_advantages(torch.tensor([1.0, 0, 0, 0]), ONE_GROUP, in_baseline=ALL)
    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)  # mean 1/4, sample deviation 1/2


def test_without_scale_the_distance_to_the_mean_remains():
    advantages = group_advantages(torch.tensor([1.0, 0, 0, 0]), ONE_GROUP, in_baseline=ALL, scale="none")
    assert advantages.tolist() == [0.75, -0.25, -0.25, -0.25]


def test_leave_one_out_compares_with_the_others():
    options = {"baseline": "leave_one_out", "scale": "none"}
    advantages = group_advantages(torch.tensor([1.0, 0, 0, 0.5]), ONE_GROUP, in_baseline=ALL, **options)
    # 1 - (0 + 0 + 1/2)/3, 0 - (1 + 1/2)/3, the same, 1/2 - 1/3
    assert advantages.tolist() == pytest.approx([5 / 6, -0.5, -0.5, 1 / 6])


def test_statistics_of_a_group_are_over_its_baseline():
    in_baseline = torch.tensor([True, True, False, True])
    found = group_statistics(torch.tensor([1.0, 0.0, 9.0, 0.0]), ONE_GROUP, in_baseline)
    assert found.count.tolist() == [3.0] * 4
    assert found.mean.tolist() == pytest.approx([1 / 3] * 4)
    assert found.deviation.tolist() == pytest.approx([math.sqrt(1 / 3)] * 4)


def test_interleaved_groups_are_compared_within_themselves():
    rewards = torch.tensor([0.0, 10.0, 2.0, 30.0], dtype=torch.float64)
    advantages = group_advantages(rewards, torch.tensor([7, -1, 7, -1]), in_baseline=ALL, epsilon=0.0)
    # two rollouts at distance d: sample deviation d / sqrt 2, so each is sqrt(1/2) deviations from the mean
    half = math.sqrt(0.5)
    assert advantages.tolist() == pytest.approx([-half, -half, half, half], abs=1e-15)


def test_a_row_outside_of_the_baseline_moves_no_other():
    rewards = torch.tensor([1.0, 0.0, math.nan, 0.0])
    in_baseline = torch.tensor([True, True, False, True])
    advantages = group_advantages(rewards, ONE_GROUP, in_baseline=in_baseline, scale="none")
    third = 1 / 3  # mean of 1, 0, 0
    assert advantages.tolist() == pytest.approx([2 * third, -third, 0.0, -third])


@pytest.mark.parametrize("scale", ["std", "none"])
def test_a_single_row_in_the_baseline_has_no_advantage(scale):
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    in_baseline = torch.tensor([True, False, False, False])
    assert group_advantages(rewards, ONE_GROUP, in_baseline=in_baseline, scale=scale).tolist() == [0.0] * 4


def test_no_rollouts_have_no_advantages():
    empty = torch.zeros(0)
    assert group_advantages(empty, empty.long(), in_baseline=empty.bool()).shape == (0,)


@given(
    st.one_of(st.floats(-1, 1, width=32), st.floats(-1e6, 1e6)),
    st.integers(1, 33),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from(["std", "none"]),
)
def test_equal_rewards_teach_exactly_nothing(reward, size, dtype, scale):
    rewards = torch.full((size,), reward, dtype=dtype)
    in_baseline = torch.ones(size, dtype=torch.bool)
    advantages = group_advantages(rewards, torch.zeros(size, dtype=torch.int64), in_baseline=in_baseline, scale=scale)
    assert advantages.abs().max().item() == 0.0


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_order_of_rollouts_does_not_matter(make_batch, seed, random):
    batch = make_batch(seed)
    order = list(range(len(batch["group"])))
    random.shuffle(order)
    straight = group_advantages(batch["rewards"], batch["group"], in_baseline=batch["in_loss"])
    shuffled = group_advantages(batch["rewards"][order], batch["group"][order], in_baseline=batch["in_loss"][order])
    torch.testing.assert_close(shuffled, straight[order], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10_000))
def test_advantages_of_a_group_sum_to_zero_and_do_not_see_other_groups(make_batch, seed):
    batch = make_batch(seed)
    advantages = group_advantages(batch["rewards"], batch["group"], in_baseline=batch["in_loss"])
    for name in batch["group"].unique():
        members = batch["group"] == name
        alone = group_advantages(
            batch["rewards"][members], batch["group"][members], in_baseline=batch["in_loss"][members]
        )
        torch.testing.assert_close(advantages[members], alone, rtol=1e-9, atol=1e-12)
        assert alone.sum().item() == pytest.approx(0, abs=1e-9)


def test_every_token_carries_the_advantage_of_its_rollout():
    rewards, row = torch.tensor([1.0, 0, 0, 0]), torch.tensor([3, 0, 0, 1, 2])
    advantages = group_token_advantages(rewards, ONE_GROUP, ALL, row, scale="none")
    assert advantages.tolist() == [-0.25, 0.75, 0.75, -0.25, -0.25]


def test_rows_have_a_signal_if_they_train_and_a_token_has_an_advantage():
    advantages = torch.tensor([0.0, 0.0, -1.0, 0.0, 2.0])
    row = torch.tensor([0, 0, 1, 1, 2])
    in_loss = torch.tensor([True, True, False, True])  # row 3 has no token
    assert rows_with_signal(advantages, row, in_loss).tolist() == [False, True, False, False]


def test_a_row_of_the_baseline_without_a_finite_reward_is_refused():
    with pytest.raises(ValueError, match="must not be in it"):
        group_advantages(torch.tensor([1.0, math.nan, 0, 0]), ONE_GROUP, in_baseline=ALL)


@pytest.mark.parametrize("shape", [(3,), (4, 1)])
def test_columns_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=r"must all be \(B,\)"):
        group_advantages(torch.zeros(shape), ONE_GROUP, in_baseline=ALL)
    with pytest.raises(ValueError, match=r"must both be \(N,\)"):
        rows_with_signal(torch.zeros(shape), ONE_GROUP, ALL)
