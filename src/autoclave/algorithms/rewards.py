"""Rewards before advantages: length penalty, KL penalty, and rewards of tokens.

Pure functions; no gradient flows through them. Rows without a verdict keep whatever stands in their reward.
"""

import torch
from torch import Tensor

from autoclave.algorithms.kl import KlEstimator, kl_estimate
from autoclave.algorithms.packed import check_tokens, row_lengths, row_sums


def soft_overlong_rewards(
    rewards: Tensor, row: Tensor, length_limits: Tensor, *, buffer: float, penalty: float
) -> Tensor:
    """Rewards minus a penalty for responses near the length limit.

        r' = r - penalty * clip((|o| - (1 - buffer) L) / (buffer L), 0, 1),   L = length limit, |o| = length

    Args:
        rewards: (B,) float.
        row: (N,) int64, the rollout of each token.
        length_limits: (B,) int64, most tokens that the response could have had.
        buffer: last part of the limit over which the loss grows from 0 to `penalty`; in [0, 1], 0 takes nothing.
        penalty: in units of reward.

    Returns:
        (B,), dtype of `rewards`.

    Source: Yu et al., DAPO, arXiv:2503.14476, equation 13 (penalty 1) and section 4.1 (limit 20480, buffer 4096
    tokens = 0.2).
    """
    if not buffer:
        return rewards
    limits = length_limits.double()
    excess = row_lengths(row, len(rewards)).double() - (1 - buffer) * limits
    return (rewards.double() - penalty * (excess / (buffer * limits)).clamp(0, 1)).to(rewards.dtype)


def token_kl(old_log_probs: Tensor, reference_log_probs: Tensor, *, estimator: KlEstimator = "k1") -> Tensor:
    """(N,) in nats: the estimate of KL(policy || reference) at each token, of the policy at the start of the step.

    Args:
        old_log_probs: (N,) float, under the policy at the start of the step.
        reference_log_probs: (N,) float, under the reference policy.
        estimator: "k1", "k2" or "k3", see `autoclave.algorithms.kl`. As part of a reward k1 is unbiased in value and
            gradient; k2 and k3 are not.

    Source: Ziegler et al., arXiv:1909.08593, equation 2 (k1 in the reward).
    """
    return kl_estimate(estimator, old_log_probs.double(), reference_log_probs.double())


def penalised_rewards(rewards: Tensor, row: Tensor, kl: Tensor, kl_coefficient: Tensor) -> Tensor:
    """Rewards of responses minus their KL penalty.

        r'_i = r_i - sum over tokens t of i of c_t KL_t

    Args:
        rewards: (B,) float.
        row: (N,) int64, the rollout of each token.
        kl: (N,) float, in nats, as `token_kl` gives it.
        kl_coefficient: (N,) float, cost of a nat in units of reward; one number for all tokens of a step.

    Returns:
        (B,), dtype of `rewards`.

    Raises:
        ValueError: a column is not (N,).

    Source: Ahmadian et al., arXiv:2402.14740, equation 3.
    """
    check_tokens(row, kl=kl, kl_coefficient=kl_coefficient)
    return (rewards.double() - row_sums(kl_coefficient * kl, row, len(rewards))).to(rewards.dtype)


def outcome_token_rewards(rewards: Tensor, row: Tensor) -> Tensor:
    """(N,) float64: the reward of each rollout at its last token, 0 at the others.

    Args:
        rewards: (B,) float.
        row: (N,) int64, the rollout of each token; the tokens of one rollout stand in order.
    """
    position = torch.arange(len(row), device=row.device)
    last = torch.full((len(rewards),), -1, device=row.device).scatter_reduce(0, row, position, "amax")
    return torch.where(last[row] == position, rewards.double()[row], 0.0)


def penalised_token_rewards(token_rewards: Tensor, kl: Tensor, kl_coefficient: Tensor) -> Tensor:
    """(N,): rewards of tokens minus the KL penalty of each token.

        r'_t = r_t - c_t KL_t

    Args:
        token_rewards: (N,) float, as `outcome_token_rewards` gives them.
        kl: (N,) float, in nats, as `token_kl` gives it.
        kl_coefficient: (N,) float, cost of a nat in units of reward; one number for all tokens of a step.

    Source: Ziegler et al., arXiv:1909.08593, equation 2; Ouyang et al., InstructGPT, arXiv:2203.02155, equation 2.
    """
    return token_rewards - kl_coefficient * kl
