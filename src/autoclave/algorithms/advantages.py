"""How much better each rollout did than was to be expected. Pure functions; no gradient flows through them."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor


def group_advantages(
    rewards: Tensor,
    group: Tensor,
    *,
    votes: Tensor,
    scale: Literal["std", "none"] = "std",
    epsilon: float = 1e-6,
) -> Tensor:
    """How much better each rollout did than the others of its group.

        A_i = (r_i - mean_g) / (std_g + epsilon),   g = group of i, over the rows of g that vote

    The deviation is that of a sample (divisor: voters - 1). A row that does not vote moves nobody's baseline and gets
    0; what stands in its reward (NaN, for want of a verdict) is never read.

    Args:
        rewards: (B,) float, one number per rollout.
        group: (B,) int64, which rollouts are compared with each other; any order, any group sizes.
        votes: (B,) bool, rows that count in the baseline of their group.
        scale: "std" divides by the deviation (GRPO); "none" does not (Dr. GRPO).
        epsilon: added to the deviation, in units of reward.

    Returns:
        (B,), dtype of `rewards`. Exactly 0 for rows without a vote, for a single voter and for equal rewards.

    Raises:
        ValueError: the three are not all (B,), or a row that votes has a reward that is not finite.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.2; Liu et al., Dr. GRPO, arXiv:2503.20783.
    """
    _check_rows(rewards, group, votes)
    # float64: in float32 the mean of equal rewards is off by rounding larger than epsilon.
    exact = torch.where(votes, rewards.double(), 0.0)
    index, num_groups = _numbered(group)
    zeros = exact.new_zeros(num_groups)
    voters = zeros.index_add(0, index, votes.double())
    mean = zeros.index_add(0, index, exact) / voters.clamp(min=1)
    has_spread = _group_has_spread(rewards, index, votes, num_groups)
    centred = torch.where(votes & has_spread[index], exact - mean[index], 0.0)
    if scale == "none":
        return centred.to(rewards.dtype)
    variance = zeros.index_add(0, index, centred.square()) / (voters - 1).clamp(min=1)
    return (centred / (variance.sqrt()[index] + epsilon)).to(rewards.dtype)


def group_token_advantages(
    rewards: Tensor,
    group: Tensor,
    trains: Tensor,
    row: Tensor,
    *,
    scale: Literal["std", "none"] = "std",
    epsilon: float = 1e-6,
) -> Tensor:
    """The advantage of each token: that of its rollout, because the reward is given once, at the end.

    Rows that do not train do not vote: a rollout without a verdict, or one that is masked, says nothing about the
    others of its group.

    Args:
        rewards: (B,) float, as in `group_advantages`; so are the next and the options.
        group: (B,) int64.
        trains: (B,) bool, rows that train and therefore vote.
        row: (N,) int64, the rollout of each token.
        scale: "std" or "none".
        epsilon: in units of reward.

    Returns:
        (N,), dtype of `rewards`.

    Raises:
        ValueError: as `group_advantages`.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.2 (outcome supervision).
    """
    return group_advantages(rewards, group, votes=trains, scale=scale, epsilon=epsilon)[row]


def rows_with_signal(advantages: Tensor, row: Tensor, trains: Tensor) -> Tensor:
    """Which trained rows have a token whose advantage is not 0; the others cannot move the policy by their reward.

    Args:
        advantages: (N,) float.
        row: (N,) int64, the rollout of each token.
        trains: (B,) bool, rows that are not masked.

    Returns:
        (B,) bool.

    Raises:
        ValueError: `advantages` and `row` are not both (N,).
    """
    if advantages.ndim != 1 or advantages.shape != row.shape:
        raise ValueError(f"advantages {tuple(advantages.shape)} and row {tuple(row.shape)} must both be (N,)")
    num_signals = torch.zeros(len(trains), dtype=torch.int64, device=trains.device)
    return trains & (num_signals.index_add(0, row, (advantages != 0).long()) > 0)


def _check_rows(rewards: Tensor, group: Tensor, votes: Tensor) -> None:
    if rewards.ndim != 1 or rewards.shape != group.shape or rewards.shape != votes.shape:
        shapes = f"rewards {tuple(rewards.shape)}, group {tuple(group.shape)}, votes {tuple(votes.shape)}"
        raise ValueError(f"{shapes} must all be (B,)")
    if not rewards[votes].isfinite().all():
        raise ValueError("a row that votes has a reward that is not finite; a row without a verdict must not vote")


def _numbered(group: Tensor) -> tuple[Tensor, int]:
    """The groups renamed 0, 1, 2 ..., (B,), and how many there are."""
    names, index = cast(
        "tuple[Tensor, Tensor]",
        torch.unique(group, return_inverse=True),  # pyright: ignore[reportUnknownMemberType]  untyped in torch
    )
    return index, len(names)


def _group_has_spread(rewards: Tensor, index: Tensor, votes: Tensor, num_groups: int) -> Tensor:
    """(groups,) bool: two voters of the group have different rewards. Exact, where a deviation is rounded."""
    infinite = torch.full((num_groups,), torch.inf, dtype=rewards.dtype, device=rewards.device)
    lowest = infinite.scatter_reduce(0, index[votes], rewards[votes], "amin")
    highest = (-infinite).scatter_reduce(0, index[votes], rewards[votes], "amax")
    return highest > lowest
