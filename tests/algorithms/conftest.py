"""What tests of algorithms share: random packed batches, and what an algorithm makes of one."""

from __future__ import annotations

import pytest
import torch

from autoclave.algorithms import Algorithm

Batch = dict[str, torch.Tensor]
LEAVES = ("log_probs", "entropy", "values")


def _make_batch(seed: int, dtype: torch.dtype = torch.float64) -> Batch:
    """Two to five groups of one to five rollouts of one to seven tokens, rows and tokens in any order.

    One row in four does not train; of these every second has no reward. Rewards are often equal, so some groups teach
    nothing.
    """
    generator = torch.Generator().manual_seed(seed)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    sizes = [whole(1, 5) for _ in range(whole(2, 5))]
    group = torch.cat([torch.full((size,), number * 10) for number, size in enumerate(sizes)])
    group = group[torch.randperm(len(group), generator=generator)]
    lengths = torch.randint(1, 8, group.shape, generator=generator)
    row = torch.arange(len(group)).repeat_interleave(lengths)
    row = row[torch.randperm(len(row), generator=generator)]
    chance = torch.rand(group.shape, generator=generator)
    in_loss, judged = chance > 0.25, chance > 0.125
    rewards = torch.randint(0, 3, group.shape, generator=generator).to(dtype) / 2
    noise = [torch.randn(row.shape, generator=generator, dtype=dtype) for _ in range(7)]
    old = -noise[0].abs() - 0.1
    return {
        "group": group,
        "row": row,
        "in_loss": in_loss,
        "rewards": rewards.where(judged, torch.nan),
        "minibatch": torch.zeros_like(group),
        "length_limits": torch.full_like(group, 7),
        "old_log_probs": old,
        "log_probs": old + 0.3 * noise[1],  # about half of the ratios are outside the clip
        "reference_log_probs": old + 0.5 * noise[2],
        "sampler_log_probs": old + 0.3 * noise[3],
        "entropy": noise[4].abs(),
        "old_values": noise[5],
        "values": noise[5] + 0.3 * noise[6],
    }


def _learn(algorithm: Algorithm, batch: Batch) -> Batch:
    """The batch with all that the losses read; `log_probs`, `entropy` and `values` are leaves of a new graph."""
    leaves = {name: batch[name].clone().requires_grad_() for name in LEAVES}
    coefficients = {
        name: torch.full(batch["row"].shape, state[0], dtype=torch.float64)
        for name, state in algorithm.first_state.items()
    }
    return algorithm.correct(algorithm.prepare(batch | coefficients)) | leaves


@pytest.fixture(scope="session")
def make_batch():
    return _make_batch


@pytest.fixture(scope="session")
def learn():
    return _learn
