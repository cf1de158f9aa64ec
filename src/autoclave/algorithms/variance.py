"""Over-long filtering by length-scaled variance: drops long responses that dominate the variance of a minibatch.

The thesis's introduction names it without a formula; this is ours. With a mean over tokens the gradient of response i
is A_i / N times the sum of |o_i| score vectors; if these are independent and alike, its variance is proportional to

    v_i = |o_i| A_i^2
"""

import torch
from torch import Tensor

from autoclave.algorithms.packed import check_tokens, row_lengths, row_sums


def without_dominant(advantages: Tensor, row: Tensor, in_loss: Tensor, minibatch: Tensor, *, limit: float) -> Tensor:
    """The rows that train, minus long ones that dominate the variance of their minibatch.

    Row i is dropped if its share of the variance, v_i / sum of v, is above the limit, and would not be if the response
    were as long as the mean one of the minibatch. So a rare success that dominates by its advantage alone stays.

    Args:
        advantages: (N,) float, one number for all tokens of a row.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that train.
        minibatch: (B,) int64, the optimizer step of each row.
        limit: in (0, 1]; 1 drops nothing.

    Returns:
        (B,) bool, never True where `in_loss` is not.

    Raises:
        ValueError: the first two are not both (N,).

    Source: Berkeley EECS-2025-123, chapter 1 ("over-long filtering that discards trajectories whose length-scaled
    variance dominates the minibatch"); the formula is ours.
    """
    check_tokens(row, advantages=advantages)
    num_rows = len(in_loss)
    lengths = row_lengths(row, num_rows).double()
    squares = torch.where(in_loss, row_sums(advantages.double().square(), row, num_rows), 0.0)  # |o| A^2
    steps = int(minibatch.amax()) + 1 if num_rows else 0
    total = row_sums(squares, minibatch, steps)[minibatch]
    counted = in_loss & (lengths > 0)
    mean_length = row_sums(torch.where(counted, lengths, 0.0), minibatch, steps)
    mean_length = (mean_length / row_sums(counted, minibatch, steps).clamp(min=1))[minibatch]
    at_mean_length = squares * mean_length / lengths.clamp(min=1)
    dominates = squares > limit * total
    would_anyway = at_mean_length > limit * (total - squares + at_mean_length)
    return in_loss & ~(dominates & ~would_anyway)
