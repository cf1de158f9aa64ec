"""Advantages that differ from token to token: GAE, reward to go, and normalisation over the batch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import (
    build_algorithm,
    generalised_advantages,
    generalised_turn_advantages,
    group_token_advantages,
    group_turn_advantages,
    outcome_token_rewards,
    returns,
    reward_to_go,
    rows_with_signal,
    whitened,
)
from autoclave.algorithms.packed import discounted_sums, next_tokens
from autoclave.config import PpoConfig

ROW = torch.tensor([0, 0, 0])
BOTH = torch.tensor([True])


def test_generalised_advantages_by_hand():
    rewards, values = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.5])
    found = generalised_advantages(rewards, values, ROW, BOTH, discount=0.5, gae_lambda=0.5)
    # d = (0.5 * 0.25 - 0.5, 0.5 * 0.5 - 0.25, 1 - 0.5) = (-0.375, 0, 0.5); A_t = d_t + 0.25 A_(t+1)
    assert found.tolist() == [-0.375 + 0.25 * 0.125, 0.125, 0.5]
    assert returns(found, values).tolist() == [-0.375 + 0.25 * 0.125 + 0.5, 0.375, 1.0]


TURNS = torch.tensor([0, 0, 1, 1])


def test_advantages_over_turns_by_hand():
    rewards, values = torch.tensor([0.0, 0.5, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.5, 0.75])
    row = torch.zeros(4, dtype=torch.int64)
    options = {"discount": 0.5, "gae_lambda": 0.5, "turn_discount": 1.0, "turn_lambda": 0.25}
    found = generalised_turn_advantages(rewards, values, row, TURNS, BOTH, **options)
    # d = (0.5 * 0.25 - 0.5, 0.5 + 1 * 0.5 - 0.25, 0.5 * 0.75 - 0.5, 1 - 0.75) = (-0.375, 0.75, -0.125, 0.25)
    # A_3 = 0.25, A_2 = -0.125 + 0.25 * 0.25 = -0.0625, A_1 = 0.75 + 0.25 * -0.0625, A_0 = -0.375 + 0.25 * A_1
    assert found.tolist() == [-0.375 + 0.25 * 0.734375, 0.734375, -0.0625, 0.25]


def test_advantages_of_turns_in_groups_by_hand():
    rewards = torch.tensor([1.0, 0.0, 2.0, 3.0, 0.0, 5.0, 9.0])
    row, turn = torch.tensor([0, 1, 0, 0, 1, 2, 3]), torch.tensor([0, 0, 1, 1, 1, 0, 0])
    group, counted = torch.tensor([7, 7, 7, 8]), torch.tensor([True, True, True, False])
    found = group_turn_advantages(rewards, row, turn, group, counted, discount=0.5)
    # R: rollout 0 has 1 + 0.5 * 5 = 3.5 and 5, rollout 1 has 0 and 0, rollout 2 has 5; means 8.5 / 3 and 2.5,
    # deviations 2.565801 and 5 / sqrt(2)
    first = [(each - 8.5 / 3) / 2.565801 for each in (3.5, 0, 5)]
    assert found.tolist() == pytest.approx([first[0], first[1], 0.5**0.5, 0.5**0.5, -(0.5**0.5), first[2], 0.0], 1e-5)


@given(st.integers(0, 10_000), st.floats(0.1, 1), st.floats(0, 1))
def test_credit_for_the_only_turn_is_exactly_that_of_the_episode(make_batch, seed, discount, gae_lambda):
    batch = make_batch(seed)
    row, only, in_loss = batch["row"], torch.zeros_like(batch["row"]), batch["in_loss"]
    rewards, options = outcome_token_rewards(batch["rewards"], row), {"discount": discount, "gae_lambda": gae_lambda}
    values, between = batch["old_values"], {"turn_discount": 0.3, "turn_lambda": 0.7}
    of_turns = generalised_turn_advantages(rewards, values, row, only, in_loss, **options, **between)
    assert torch.equal(of_turns, generalised_advantages(rewards, values, row, in_loss, **options))
    in_groups = group_turn_advantages(rewards, row, only, batch["group"], in_loss, discount=discount)
    assert torch.equal(in_groups, group_token_advantages(batch["rewards"], batch["group"], in_loss, row))


def test_ppo_gives_credit_over_turns_where_settings_say_so(make_batch, learn):
    batch = make_batch(3)
    row = batch["row"] = batch["row"].sort().values
    late = torch.cat([torch.arange(int(count)) >= 2 for count in torch.bincount(row)])
    plain, turns = PpoConfig(), PpoConfig(turn_lambda=0.0)
    assert build_algorithm(turns).reads - build_algorithm(plain).reads == {"turn"}
    found = [
        learn(build_algorithm(each), batch | {"turn": turn})["advantages"]
        for each, turn in ((plain, late.long()), (turns, 0 * row), (turns, late.long()))
    ]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_lambda_of_one_trusts_the_rewards_and_of_zero_the_critic():
    rewards, values = torch.tensor([0.0, -0.5, 1.0]), torch.tensor([0.5, 0.25, 0.75])
    trusting = generalised_advantages(rewards, values, ROW, BOTH, discount=1.0, gae_lambda=1.0)
    assert trusting.tolist() == [0.5 - 0.5, 0.5 - 0.25, 1 - 0.75]  # reward to go less value
    one_step = generalised_advantages(rewards, values, ROW, BOTH, discount=1.0, gae_lambda=0.0)
    assert one_step.tolist() == [0.25 - 0.5, -0.5 + 0.75 - 0.25, 1 - 0.75]


def test_reward_to_go_is_what_comes_at_a_token_and_after_it():
    found = reward_to_go(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1, 0, 1, 0]), torch.tensor([True, True]))
    assert found.tolist() == [5.0, 10.0, 4.0, 8.0]


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_sums_backwards_agree_with_a_loop(make_batch, seed, factor):
    batch = make_batch(seed)
    values, row = batch["old_values"], batch["row"]
    found, following = discounted_sums(values, row, factor), next_tokens(values, row)
    for name in range(len(batch["group"])):
        later, after = 0.0, 0.0
        for token in reversed((row == name).nonzero().flatten().tolist()):
            assert following[token].item() == after
            after = values[token].item()
            later = after + factor * later
            assert found[token].item() == pytest.approx(later, abs=1e-12)


def test_no_tokens_have_no_advantages():
    empty, nobody = torch.zeros(0), torch.zeros(0, dtype=torch.bool)
    row = torch.zeros(0, dtype=torch.int64)
    assert generalised_advantages(empty, empty, row, nobody, discount=1.0, gae_lambda=1.0).shape == (0,)
    assert whitened(empty, row, nobody).shape == reward_to_go(empty, row, nobody).shape == (0,)


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_trained_tokens():
    row, in_loss = torch.tensor([0, 0, 1, 2]), torch.tensor([True, True, False])
    found = whitened(torch.tensor([1.0, 3.0, 2.0, 1e9]), row, in_loss)
    assert found.tolist() == pytest.approx([-1.0, 1.0, 0.0, 0.0], abs=1e-7)  # mean 2, sample deviation 1


@given(st.floats(-1e6, 1e6, width=32), st.integers(0, 33), st.sampled_from([torch.float32, torch.float64]))
def test_equal_advantages_are_whitened_to_exactly_nothing(value, size, dtype):
    found = whitened(torch.full((size,), value, dtype=dtype), torch.arange(size), torch.ones(size, dtype=torch.bool))
    assert not found.any()


@given(st.integers(0, 10_000))
def test_whitening_forgets_shift_and_scale(make_batch, seed):
    batch = make_batch(seed)
    row, in_loss = batch["row"], batch["in_loss"]
    plain, moved = (whitened(values, row, in_loss) for values in (batch["values"], 5 * batch["values"] - 3))
    torch.testing.assert_close(moved, plain, rtol=1e-6, atol=1e-6)
    among = plain[in_loss[row]]
    if len(among) > 1:
        assert among.mean().item() == pytest.approx(0, abs=1e-9)
        assert among.std().item() == pytest.approx(1, abs=1e-6)


def test_columns_that_do_not_fit_are_refused():
    short = torch.zeros(2)
    with pytest.raises(ValueError, match=r"old_values \(2,\) and row \(3,\) must both be \(N,\)"):
        generalised_advantages(torch.zeros(3), short, ROW, BOTH, discount=1.0, gae_lambda=1.0)
    for refused in (reward_to_go, whitened):
        with pytest.raises(ValueError, match=r"must both be \(N,\)"):
            refused(short, ROW, BOTH)
    with pytest.raises(ValueError, match=r"must both be \(N,\)"):
        rows_with_signal(short, ROW, BOTH)


def test_a_success_that_the_critic_expected_is_no_news():
    rewards, values = torch.tensor([0.0, 0.0, 1.0]), torch.ones(3)
    assert not generalised_advantages(rewards, values, ROW, BOTH, discount=1.0, gae_lambda=0.95).any()
    assert not math.isnan(whitened(torch.zeros(3), ROW, BOTH).sum().item())
