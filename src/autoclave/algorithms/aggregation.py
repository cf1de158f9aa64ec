"""The weight of each token in the loss (`loss_agg_mode` in verl). Pure functions of the batch's shape.

A loss is the sum over tokens of weight x loss of the token. Weights are computed once, over the rollouts of a whole
optimizer step, before it is split; so the sum over micro-batches, ranks or parts of a sequence is the same whatever
the split, and a part that is left out (because its loss is 0) changes nothing either.

A token trains if and only if its weight is above 0. All tokens of rows that train count, also those of rows whose
advantage is 0. A row without tokens is no response.
"""

import torch
from torch import Tensor

from autoclave.algorithms.packed import row_lengths


def token_mean(row: Tensor, in_loss: Tensor) -> Tensor:
    """Weights that make the loss the mean over all trained tokens: long responses weigh more than short ones.

        w_t = 1 / (number of trained tokens)

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        in_loss: (B,) bool, rows that train.

    Returns:
        (N,) float32, summing to 1; all 0 if no row trains.

    Source: Yu et al., DAPO, arXiv:2503.14476, section 3.3.
    """
    trained = in_loss[row]
    return torch.where(trained, 1.0 / trained.sum().double(), 0.0).float()


def sequence_mean(row: Tensor, in_loss: Tensor) -> Tensor:
    """Weights that make the loss the mean over trained responses of the mean over tokens of a response.

        w_t = 1 / (S |o_i|),   i = row of t, |o_i| its tokens, S = number of trained responses

    With groups of one size G and no masked row this is the 1/G sum 1/|o_i| sum of GRPO, averaged over groups.

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        in_loss: (B,) bool, rows that train.

    Returns:
        (N,) float32, summing to 1; all 0 if no row trains.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, equation 3.
    """
    lengths = row_lengths(row, len(in_loss))
    return torch.where(in_loss[row], 1.0 / (_num_responses(lengths, in_loss) * lengths[row]), 0.0).float()


def sequence_sum(row: Tensor, in_loss: Tensor) -> Tensor:
    """Weights that make the loss the mean over trained responses of the sum over tokens of a response.

        w_t = 1 / S,   S = number of trained responses

    That is the loss of a response taken as one action, whose log-prob is the sum of those of its tokens.

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        in_loss: (B,) bool, rows that train.

    Returns:
        (N,) float32; all 0 if no row trains.

    Source: Ahmadian et al., arXiv:2402.14740, section 2.3.
    """
    return torch.where(in_loss[row], 1.0 / _num_responses(row_lengths(row, len(in_loss)), in_loss), 0.0).float()


def budget_mean(row: Tensor, in_loss: Tensor, length_limits: Tensor) -> Tensor:
    """Weights that make the loss the sum over tokens divided by the sum of the length limits.

        w_t = 1 / (S L_i),   i = row of t, L_i its length limit, S = number of trained responses

    The divisor does not depend on what was sampled, so no response gains by being short or long.

    Args:
        row: (N,) int64, the rollout of each token of the optimizer step.
        in_loss: (B,) bool, rows that train.
        length_limits: (B,) int64, most tokens that each response could have had.

    Returns:
        (N,) float32, summing to at most 1; all 0 if no row trains.

    Source: Liu et al., Dr. GRPO, arXiv:2503.20783, section 3.2 (a constant, "e.g., generation budget").
    """
    num_responses = _num_responses(row_lengths(row, len(in_loss)), in_loss)
    return torch.where(in_loss[row], 1.0 / (num_responses * length_limits[row]), 0.0).float()


def _num_responses(lengths: Tensor, in_loss: Tensor) -> Tensor:
    """() float64: trained rows that have tokens."""
    return (in_loss & (lengths > 0)).sum().double()
