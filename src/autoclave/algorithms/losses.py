"""Losses of single tokens. What a mean over them is, is not decided here (`aggregation`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from autoclave.algorithms.kl import k3, log_ratio


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of each token, and what was observed of it on the way.

    `loss` (N,) carries the gradient. `means` and `maxima` are (N,) each, detached, by the name of a metric: the metric
    of an optimizer step is their mean, or their maximum, over its trained tokens.
    """

    loss: Tensor
    means: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    maxima: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_lower: float, clip_upper: float
) -> TokenLoss:
    """Policy-gradient loss that stops pulling a token once its probability has moved far enough.

        r = exp(log_probs - old_log_probs)
        loss = -min(r A, clip(r, 1 - clip_lower, 1 + clip_upper) A)

    At r = 1 its gradient is that of REINFORCE, -A grad log_probs. The log-ratio is cut at +-20.

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        old_log_probs: (N,) float, under the policy at the start of the step.
        advantages: (N,) float.
        clip_lower: the ratio is clipped below at 1 - this; in (0, 1).
        clip_upper: the ratio is clipped above at 1 + this; above 0.

    Returns:
        Loss, and: `clip_fraction_lower` 1 where A < 0 and r < 1 - clip_lower, `clip_fraction_upper` 1 where A > 0 and
        r > 1 + clip_upper (there the gradient is 0); `approx_kl` the k3 estimate of KL(old || new), in nats;
        `ratio_max` r.

    Raises:
        ValueError: the three do not have one shape.

    Source: Schulman et al., PPO, arXiv:1707.06347, equation 7; Yu et al., DAPO, arXiv:2503.14476, section 3.1 (two
    bounds).
    """
    if not log_probs.shape == old_log_probs.shape == advantages.shape:
        shapes = f"{tuple(log_probs.shape)}, {tuple(old_log_probs.shape)}, {tuple(advantages.shape)}"
        raise ValueError(f"log_probs, old_log_probs, advantages must have one shape, not {shapes}")
    ratio = log_ratio(log_probs, old_log_probs).exp()
    clipped = ratio.clamp(1 - clip_lower, 1 + clip_upper)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    seen = ratio.detach()
    means = {
        "clip_fraction_lower": ((advantages < 0) & (seen < 1 - clip_lower)).to(seen.dtype),
        "clip_fraction_upper": ((advantages > 0) & (seen > 1 + clip_upper)).to(seen.dtype),
        "approx_kl": k3(old_log_probs, log_probs.detach()),
    }
    return TokenLoss(loss, means, {"ratio_max": seen})


def kl_penalty(
    log_probs: Tensor,
    reference_log_probs: Tensor,
    *,
    coefficient: float,
    estimator: Callable[[Tensor, Tensor], Tensor] = k3,
) -> TokenLoss:
    """What it costs to leave the reference policy.

        loss = coefficient * estimator of KL(policy || reference)

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        reference_log_probs: (N,) float, under the reference policy.
        coefficient: loss per nat.
        estimator: `k1`, `k2` or `k3` of `autoclave.algorithms.kl`, which says what each means as a loss.

    Returns:
        Loss, and `reference_kl`, the estimate in nats.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, equations 3 and 4.
    """
    divergence = estimator(log_probs, reference_log_probs)
    return TokenLoss(coefficient * divergence, {"reference_kl": divergence.detach()})


def entropy_bonus(entropy: Tensor, *, coefficient: float) -> TokenLoss:
    """A reward for staying undecided: loss = -coefficient * entropy.

    Args:
        entropy: (N,) float, in nats, of the policy at each token; carries the gradient.
        coefficient: loss per nat.

    Returns:
        Loss, and `entropy` in nats.

    Source: Schulman et al., PPO, arXiv:1707.06347, equation 9.
    """
    return TokenLoss(-coefficient * entropy, {"entropy": entropy.detach()})
