"""The weight of each token in the loss: what "mean" means. Pure functions of the batch's shape.

A loss is the sum over tokens of weight x loss of the token. Weights are computed once, over the rollouts of a whole
optimizer step, before it is split; so the sum over micro-batches, ranks or parts of a sequence is the same whatever
the split, and a part that is left out (because its loss is 0) changes nothing either.

A token trains if and only if its weight is above 0. All tokens of rows that train count, also those of rows whose
advantage is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_mean(row: Tensor, trains: Tensor) -> Tensor:
    """Weights that make the loss the mean over all trained tokens: long responses weigh more than short ones.

        w_t = 1 / (number of trained tokens)

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        trains: (B,) bool, rows that train.

    Returns:
        (N,) float32, summing to 1; all 0 if no row trains.

    Source: Yu et al., DAPO, arXiv:2503.14476, section 3.3.
    """
    trained = trains[row]
    return torch.where(trained, 1.0 / trained.sum().double(), 0.0).float()


def sequence_mean(row: Tensor, trains: Tensor) -> Tensor:
    """Weights that make the loss the mean over trained responses of the mean over tokens of a response.

        w_t = 1 / (S * |o_i|),   i = row of t, |o_i| its tokens, S = number of trained rows that have tokens

    With groups of one size G and no masked row this is the 1/G sum 1/|o_i| sum of GRPO, averaged over groups.

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        trains: (B,) bool, rows that train.

    Returns:
        (N,) float32, summing to 1; all 0 if no row trains.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, equation 3.
    """
    lengths = torch.bincount(row, minlength=len(trains))
    num_sequences = (trains & (lengths > 0)).sum().double()
    return torch.where(trains[row], 1.0 / (num_sequences * lengths[row]), 0.0).float()
