"""Advantage estimators: rewards minus a baseline. Pure functions; no gradient flows through them.

Sums are formed in float64: in float32 the mean of equal rewards is off by more than any epsilon, and rollouts that
teach nothing would be pulled apart.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from autoclave.algorithms.kl import log_ratio
from autoclave.algorithms.packed import check_tokens, discounted_sums, next_tokens, numbered, require_choice, row_sums

Factor = float | Tensor
Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "mean", "none"]


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Statistics of each row's group, over its rows in the baseline: (B,) each, float64 and bool.

    `deviation` is that of a sample (divisor: count - 1), 0 for fewer than two rows. `has_spread` is true where two
    rows have different rewards: exactly, where a deviation is rounded. `mean` is 0 where no row is in the baseline.
    """

    count: Tensor
    mean: Tensor
    deviation: Tensor
    has_spread: Tensor


def group_statistics(rewards: Tensor, group: Tensor, in_baseline: Tensor) -> GroupStatistics:
    """Mean and spread of the group of each row. Arguments and errors as in `group_advantages`."""
    _check_rows(rewards, group, in_baseline)
    exact = torch.where(in_baseline, rewards.double(), 0.0)
    index, num_groups = numbered(group)
    zeros = exact.new_zeros(num_groups)
    count = zeros.index_add(0, index, in_baseline.double())
    mean = zeros.index_add(0, index, exact) / count.clamp(min=1)
    has_spread = _group_has_spread(rewards, index, in_baseline, num_groups)
    centred = torch.where(in_baseline & has_spread[index], exact - mean[index], 0.0)
    variance = zeros.index_add(0, index, centred.square()) / (count - 1).clamp(min=1)
    return GroupStatistics(count[index], mean[index], variance.sqrt()[index], has_spread[index])


def group_advantages(
    rewards: Tensor,
    group: Tensor,
    *,
    in_baseline: Tensor,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    epsilon: float = 1e-6,
) -> Tensor:
    """Advantage of each rollout over the others of its group.

        A_i = (r_i - b_i) / (std_g + epsilon),   g = group of i, over the n rows of g in the baseline
        b_i = mean_g, or the mean of the other n - 1, so that r_i - b_i is n / (n - 1) times as large

    The deviation is that of a sample (divisor: n - 1). A row outside of the baseline moves no baseline and gets 0;
    what stands in its reward (NaN, for want of a verdict) is never read.

    Args:
        rewards: (B,) float, one number per rollout.
        group: (B,) int64, which rollouts are compared with each other; any order, any group sizes.
        in_baseline: (B,) bool, rows that count in the baseline of their group.
        baseline: "mean" (GRPO) or "leave_one_out" (RLOO).
        scale: "std" divides by the deviation (GRPO); "mean" by the mean of the group (MaxRL), without epsilon, with 0
            where that is 0 or less; "none" does not divide (Dr. GRPO, RLOO).
        epsilon: added to the deviation, in units of reward.

    Returns:
        (B,), dtype of `rewards`. Exactly 0 for rows outside of the baseline, for a single row and for equal rewards.

    Raises:
        ValueError: the three are not all (B,), a row in the baseline has a reward that is not finite, or `baseline` or
            `scale` is none of these words.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.2; Liu et al., Dr. GRPO, arXiv:2503.20783; Ahmadian
    et al., arXiv:2402.14740, section 2.3 (RLOO); Tajwar et al., MaxRL, arXiv:2602.02710 (of 0 or 1 as reward).
    """
    require_choice("baseline", baseline, Baseline)
    require_choice("scale", scale, Scale)
    of_group = group_statistics(rewards, group, in_baseline)
    counts = in_baseline & of_group.has_spread
    advantages = torch.where(counts, rewards.double() - of_group.mean, 0.0)
    if baseline == "leave_one_out":
        advantages = advantages * of_group.count / (of_group.count - 1).clamp(min=1)
    if scale == "std":
        advantages = advantages / (of_group.deviation + epsilon)
    elif scale == "mean":
        is_solved = of_group.mean > 0
        advantages = torch.where(is_solved, advantages / of_group.mean.where(is_solved, 1.0), 0.0)
    return advantages.to(rewards.dtype)


def group_token_advantages(
    rewards: Tensor,
    group: Tensor,
    in_baseline: Tensor,
    row: Tensor,
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    epsilon: float = 1e-6,
) -> Tensor:
    """Advantage of each token (N,), dtype of `rewards`: that of its rollout.

    Args:
        row: (N,) int64, the rollout of each token; all others, and errors, are those of `group_advantages`.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.2 (outcome supervision).
    """
    return group_advantages(rewards, group, in_baseline=in_baseline, baseline=baseline, scale=scale, epsilon=epsilon)[
        row
    ]


def group_turn_advantages(
    token_rewards: Tensor, row: Tensor, turn: Tensor, group: Tensor, in_baseline: Tensor, *, discount: float = 1.0
) -> Tensor:
    """Per-turn credit (N,) float64: the return of each token's turn over those of the same turn in the group.

        R_k = r_k + discount R_(k+1),   r_k = sum of the token rewards of turn k
        A_k = (R_k - b_k) / (std_k + epsilon),   b_k, std_k over the rollouts of the group that have a turn k

    Rollouts of one turn have exactly the advantages of `group_token_advantages`, whose arguments these are.

    Args:
        token_rewards: (N,) float, what is earned at each token.
        turn: (N,) int64, the number of each token's turn, ascending in a rollout.

    Source: arXiv:2402.03300, section 4.1.3 (rewards of steps, summed from each on), with a baseline for each turn.
    """
    check_tokens(row, token_rewards=token_rewards, turn=turn)
    most = int(turn.amax()) + 1 if len(turn) else 1
    index, count = numbered(row * most + turn)
    rows, turns = (torch.zeros(count, dtype=torch.int64).index_copy(0, index, each) for each in (row, turn))
    found = discounted_sums(row_sums(token_rewards, index, count), rows, discount)
    return group_advantages(found, group[rows] * most + turns, in_baseline=in_baseline[rows])[index]


def generalised_advantages(
    token_rewards: Tensor, old_values: Tensor, row: Tensor, in_loss: Tensor, *, discount: Factor, gae_lambda: Factor
) -> Tensor:
    """The generalised advantage estimate (GAE) of each token, from token rewards and the critic's values.

        d_t = r_t + discount V_(t+1) - V_t,   V after the last token of a response is 0
        A_t = d_t + discount gae_lambda A_(t+1)

    The tokens of one rollout stand in the order in which they were sampled; other rollouts may stand in between. A
    response that was cut by the length limit ends like any other.

    Args:
        token_rewards: (N,) float, what is earned at each token.
        old_values: (N,) float, the critic's expectation before the token is chosen, in units of reward.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that train.
        discount: gamma, in (0, 1]; one number, or one for each token (N,).
        gae_lambda: lambda, in [0, 1], likewise; 0 trusts the critic, 1 the rewards.

    Returns:
        (N,) float64; 0 for rows that do not train, whatever they hold.

    Raises:
        ValueError: the first three are not all (N,).

    Source: Schulman et al., GAE, arXiv:1506.02438, equations 11 and 16; PPO, arXiv:1707.06347, equations 11 and 12 (a
    finite sum).
    """
    check_tokens(row, token_rewards=token_rewards, old_values=old_values)
    trained = in_loss[row]
    values = torch.where(trained, old_values.double(), 0.0)
    deltas = torch.where(trained, token_rewards.double(), 0.0) + discount * next_tokens(values, row) - values
    return discounted_sums(deltas, row, discount * gae_lambda)


def generalised_turn_advantages(
    token_rewards: Tensor,
    old_values: Tensor,
    row: Tensor,
    turn: Tensor,
    in_loss: Tensor,
    *,
    discount: float,
    gae_lambda: float,
    turn_discount: float,
    turn_lambda: float,
) -> Tensor:
    """Per-turn credit: `generalised_advantages` with another discount and lambda from the end of a turn to the next.

        d_t = r_t + g_t V_(t+1) - V_t,   A_t = d_t + g_t l_t A_(t+1)
        (g_t, l_t) = (turn_discount, turn_lambda) where the next token is of another turn, else (discount, gae_lambda)

    V_(t+1) is there the value of the state in which the observation has been read. With `turn_lambda` 0 it stands for
    all that comes later. A rollout of one turn has exactly the advantages of `generalised_advantages`.

    Args:
        turn: (N,) int64, the number of each token's turn, ascending in a rollout.

    Source: arXiv:1506.02438 as above; discount and lambda of a transition as in White, arXiv:1609.01995, section 2.
    """
    check_tokens(row, turn=turn)
    is_last = next_tokens(turn.double(), row) > turn
    inner, outer = torch.tensor([[discount, gae_lambda], [turn_discount, turn_lambda]], dtype=torch.float64)
    g, decay = (torch.where(is_last, there, here) for here, there in zip(inner, outer, strict=True))
    return generalised_advantages(token_rewards, old_values, row, in_loss, discount=g, gae_lambda=decay)


def reward_to_go(token_rewards: Tensor, row: Tensor, in_loss: Tensor) -> Tensor:
    """Reward to go: sum of rewards at a token and after it, without discount.

        A_t = sum of r_s over the tokens s of the response from t on

    Args:
        token_rewards: (N,) float; the tokens of one rollout in order.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that train.

    Returns:
        (N,) float64; 0 for rows that do not train, whatever they hold.

    Raises:
        ValueError: the first two are not both (N,).

    Source: Hu et al., REINFORCE++, arXiv:2501.03262 (advantage as reward minus the KL from the token on).
    """
    check_tokens(row, token_rewards=token_rewards)
    return discounted_sums(torch.where(in_loss[row], token_rewards.double(), 0.0), row, 1.0)


def whitened(advantages: Tensor, row: Tensor, in_loss: Tensor, *, epsilon: float = 1e-8) -> Tensor:
    """Advantages brought to mean 0 and deviation 1 over all trained tokens of the batch.

        (A - mean) / (std + epsilon)

    The deviation is that of a sample (divisor: trained tokens - 1).

    Args:
        advantages: (N,) float.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that train.
        epsilon: added to the deviation, in units of advantage.

    Returns:
        (N,) float64. Exactly 0 for rows that do not train, for a single token and for equal advantages.

    Raises:
        ValueError: the first two are not both (N,).

    Source: Hu et al., REINFORCE++, arXiv:2501.03262 (global advantage normalisation); for PPO a common detail of
    implementations, Huang et al., "The 37 Implementation Details of PPO", 2022.
    """
    check_tokens(row, advantages=advantages)
    trained = in_loss[row]
    exact = advantages.double()[trained]
    result = torch.zeros_like(advantages, dtype=torch.float64)
    if len(exact) < 2 or exact.amin() == exact.amax():
        return result
    result[trained] = (exact - exact.mean()) / (exact.std() + epsilon)
    return result


def distillation_advantages(old_log_probs: Tensor, reference_log_probs: Tensor, row: Tensor, in_loss: Tensor) -> Tensor:
    """Advantages of on-policy distillation: minus the reverse KL to the teacher at each token, by its k1 estimate.

        A_t = log q(token) - log p(token),   q the teacher, which is the reference, and p the policy before the update

    Args:
        old_log_probs: (N,) float, log p.
        reference_log_probs: (N,) float, log q.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that train.

    Returns:
        (N,), in nats, within +-20; 0 for rows that do not train.

    Raises:
        ValueError: the first three are not all (N,).

    Source: Agarwal et al., GKD, arXiv:2306.13649, section 3 (reverse KL on sequences of the student); Lu and Thinking
    Machines Lab, "On-Policy Distillation", 2025 (as an advantage with discount 0).
    """
    check_tokens(row, old_log_probs=old_log_probs, reference_log_probs=reference_log_probs)
    return torch.where(in_loss[row], log_ratio(reference_log_probs, old_log_probs), 0.0)


def with_outcome(
    advantages: Tensor, rewards: Tensor, group: Tensor, in_baseline: Tensor, row: Tensor, *, weight: float
) -> Tensor:
    """Add `weight` times the centred reward of the rollout (see `group_advantages`) to advantages (N,)."""
    return advantages + weight * group_token_advantages(rewards, group, in_baseline, row, scale="none")


def returns(advantages: Tensor, old_values: Tensor) -> Tensor:
    """Targets of the critic: R_t = A_t + V_t, from advantages (N,) that are not yet normalised.

    Source: Schulman et al., GAE, arXiv:1506.02438, section 5, footnote 2; with lambda = 1 it is the discounted sum of
    rewards, which that paper itself uses.
    """
    return advantages + old_values


def rows_with_signal(values: Tensor, row: Tensor, in_loss: Tensor) -> Tensor:
    """Mask of trained rows with a token whose value is not 0; a loss that is 0 with the value cannot change the
    others.

    Args:
        values: (N,) float, such as advantages.
        row: (N,) int64, the rollout of each token.
        in_loss: (B,) bool, rows that are not masked.

    Returns:
        (B,) bool.

    Raises:
        ValueError: `values` and `row` are not both (N,).
    """
    check_tokens(row, values=values)
    num_signals = torch.zeros(len(in_loss), dtype=torch.int64, device=in_loss.device)
    return in_loss & (num_signals.index_add(0, row, (values != 0).long()) > 0)


def _check_rows(rewards: Tensor, group: Tensor, in_baseline: Tensor) -> None:
    if rewards.ndim != 1 or rewards.shape != group.shape or rewards.shape != in_baseline.shape:
        shapes = f"rewards {tuple(rewards.shape)}, group {tuple(group.shape)}, in_baseline {tuple(in_baseline.shape)}"
        raise ValueError(f"{shapes} must all be (B,)")
    if not rewards[in_baseline].isfinite().all():
        raise ValueError(
            "a row in the baseline has a reward that is not finite; a row without a verdict must not be in it"
        )


def _group_has_spread(rewards: Tensor, index: Tensor, in_baseline: Tensor, num_groups: int) -> Tensor:
    """(groups,) bool: two rows of the group's baseline have different rewards. Exact, where a deviation is rounded."""
    infinite = torch.full((num_groups,), torch.inf, dtype=rewards.dtype, device=rewards.device)
    lowest = infinite.scatter_reduce(0, index[in_baseline], rewards[in_baseline], "amin")
    highest = (-infinite).scatter_reduce(0, index[in_baseline], rewards[in_baseline], "amax")
    return highest > lowest
