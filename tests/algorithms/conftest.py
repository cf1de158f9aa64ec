"""What tests of algorithms share: random packed batches."""

from __future__ import annotations

import pytest
import torch

from autoclave.algorithms import Algorithm

Batch = dict[str, torch.Tensor]


def _make_batch(seed: int, dtype: torch.dtype = torch.float64) -> Batch:
    """Two to five groups of one to five rollouts of one to seven tokens, rows and tokens in any order.

    One row in four does not train and has no reward. Rewards are often equal, so some groups teach nothing.
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
    trains = torch.rand(group.shape, generator=generator) > 0.25
    rewards = torch.randint(0, 3, group.shape, generator=generator).to(dtype) / 2
    noise = [torch.randn(row.shape, generator=generator, dtype=dtype) for _ in range(4)]
    old = -noise[0].abs() - 0.1
    return {
        "group": group,
        "row": row,
        "trains": trains,
        "rewards": rewards.where(trains, torch.nan),
        "old_log_probs": old,
        "log_probs": old + 0.3 * noise[1],  # about half of the ratios are outside the clip
        "reference_log_probs": old + 0.5 * noise[2],
        "entropy": noise[3].abs(),
    }


def _learn(algorithm: Algorithm, batch: Batch) -> Batch:
    """The batch with advantages and weights, and with `log_probs` and `entropy` as leaves of a new graph."""
    leaves = {name: batch[name].clone().requires_grad_() for name in ("log_probs", "entropy")}
    advantages = algorithm.advantages(batch)
    weights = algorithm.weights(batch["row"], batch["trains"])
    return batch | leaves | {"advantages": advantages, "weights": weights}


@pytest.fixture(scope="session")
def make_batch():
    return _make_batch


@pytest.fixture(scope="session")
def learn():
    return _learn
