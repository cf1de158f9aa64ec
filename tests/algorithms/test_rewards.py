from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import (
    outcome_token_rewards,
    penalised_rewards,
    penalised_token_rewards,
    soft_overlong_rewards,
    token_kl,
)


def rows_of(*lengths: int) -> torch.Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def test_a_response_loses_reward_in_the_last_part_of_its_limit():
    # limit 10, buffer 4 tokens: nothing up to 6, a quarter per token beyond, all at the limit
    row, limits = rows_of(1, 6, 7, 9, 10), torch.full((5,), 10)
    found = soft_overlong_rewards(torch.ones(5), row, limits, buffer=0.4, penalty=1.0)
    assert found.tolist() == pytest.approx([1.0, 1.0, 0.75, 0.25, 0.0])
    halved = soft_overlong_rewards(torch.zeros(5), row, limits, buffer=0.4, penalty=0.5)
    assert halved.tolist() == pytest.approx([0.0, 0.0, -0.125, -0.375, -0.5])


def test_the_numbers_of_the_dapo_paper():
    row = rows_of(16384, 18432, 20480)
    found = soft_overlong_rewards(torch.ones(3), row, torch.full((3,), 20480), buffer=0.2, penalty=1.0)
    assert found.tolist() == pytest.approx([1.0, 0.5, 0.0])


def test_without_a_buffer_nothing_is_lost():
    rewards = torch.tensor([1.0, math.nan])
    assert soft_overlong_rewards(rewards, rows_of(9, 9), torch.tensor([9, 9]), buffer=0.0, penalty=1.0) is rewards


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(0.01, 1), st.floats(0.1, 3))
def test_longer_never_earns_more(lengths, buffer, penalty):
    lengths = sorted(lengths)
    limits = torch.full((len(lengths),), 40)
    found = soft_overlong_rewards(torch.ones(len(lengths)), rows_of(*lengths), limits, buffer=buffer, penalty=penalty)
    assert all(found[:-1] >= found[1:])
    assert ((found <= 1) & (found >= 1 - penalty - 1e-6)).all()


def test_the_reward_falls_on_the_last_token_of_a_response():
    row = torch.tensor([1, 0, 1, 0, 1])  # rows interleaved
    assert outcome_token_rewards(torch.tensor([2.0, 3.0, 5.0]), row).tolist() == [0.0, 0.0, 0.0, 2.0, 3.0]


def test_kl_costs_each_token_and_in_all_the_response():
    row = torch.tensor([0, 0, 1])
    kl = token_kl(torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.5, -1.0, -1.0]))
    assert kl.tolist() == [0.5, -1.0, 0.0]  # k1 may be negative
    cost = torch.full((3,), 0.1)
    assert penalised_token_rewards(torch.tensor([0.0, 1.0, 1.0]), kl, cost).tolist() == pytest.approx([-0.05, 1.1, 1.0])
    assert penalised_rewards(torch.tensor([1.0, 1.0]), row, kl, cost).tolist() == pytest.approx([1.05, 1.0])


def test_another_estimator_can_be_asked_for():
    p, q = torch.tensor([-1.0]), torch.tensor([-2.0])
    assert token_kl(p, q, estimator="k3").item() == pytest.approx(math.exp(-1) - 1 + 1)


@given(st.integers(0, 10_000))
def test_the_cost_of_a_response_is_that_of_its_tokens(make_batch, seed):
    batch = make_batch(seed)
    kl, cost = token_kl(batch["old_log_probs"], batch["reference_log_probs"]), torch.full(batch["row"].shape, 0.3)
    whole = penalised_rewards(batch["rewards"], batch["row"], kl, cost)
    tokens = penalised_token_rewards(outcome_token_rewards(batch["rewards"], batch["row"]), kl, cost)
    for row, expected in enumerate(whole.tolist()):
        assert tokens[batch["row"] == row].sum().item() == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"kl \(1,\) and row \(2,\) must both be \(N,\)"):
        penalised_rewards(torch.zeros(2), torch.tensor([0, 1]), torch.zeros(1), torch.zeros(2))
