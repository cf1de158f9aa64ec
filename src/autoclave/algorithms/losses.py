"""Losses of single tokens. What a mean over them is, is not decided here (`aggregation`)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from autoclave.algorithms.kl import KlEstimator, k3, kl_estimate, log_ratio
from autoclave.algorithms.packed import row_lengths, row_sums


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of each token, and diagnostics.

    `loss` (N,) carries the gradient. `means` and `maxima` are (N,) each, detached, by the name of a metric: the metric
    of an optimizer step is their mean, or their maximum, over its trained tokens.
    """

    loss: Tensor
    means: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    maxima: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def policy_gradient_loss(log_probs: Tensor, advantages: Tensor) -> TokenLoss:
    """The plain policy gradient, for tokens sampled from the policy in training.

        loss = -A log_probs

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        advantages: (N,) float.

    Raises:
        ValueError: the two do not have one shape.

    Source: Williams, "Simple Statistical Gradient-Following Algorithms", 1992 (REINFORCE).
    """
    _check_one_shape(log_probs=log_probs, advantages=advantages)
    return TokenLoss(-advantages * log_probs)


def clipped_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_lower: float,
    clip_upper: float,
    dual_clip: float | None = None,
) -> TokenLoss:
    """Clipped policy loss (PPO): no gradient once the ratio of a token has left the clip range in its direction.

        r = exp(log_probs - old_log_probs)
        loss = -min(r A, clip(r, 1 - clip_lower, 1 + clip_upper) A)
        with dual_clip, where A < 0:  loss = min(loss, -dual_clip A)

    At r = 1 its gradient is that of REINFORCE, -A grad log_probs. The log-ratio is cut at +-20.

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        old_log_probs: (N,) float, under the policy at the start of the step.
        advantages: (N,) float.
        clip_lower: the ratio is clipped below at 1 - this; in (0, 1].
        clip_upper: the ratio is clipped above at 1 + this; above 0.
        dual_clip: for negative advantages the ratio counts as at most this; above 1, or None for no bound.

    Returns:
        Loss, and: `clip_fraction_lower` 1 where A < 0 and r < 1 - clip_lower, `clip_fraction_upper` 1 where A > 0 and
        r > 1 + clip_upper (there the gradient is 0); with a dual clip `clip_fraction_dual` 1 where A < 0 and
        r > dual_clip (likewise); `approx_kl` the k3 estimate of KL(old || new), in nats; `ratio_max` r.

    Raises:
        ValueError: the three do not have one shape.

    Source: Schulman et al., PPO, arXiv:1707.06347, equation 7; Yu et al., DAPO, arXiv:2503.14476, section 3.1 (two
    bounds); Ye et al., arXiv:1912.09729, equation 5 (dual clip; verl's is 3).
    """
    _check_one_shape(log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    ratio = log_ratio(log_probs, old_log_probs).exp()
    loss = _clipped(ratio, advantages, clip_lower, clip_upper)
    means = _clip_fractions(ratio, advantages, clip_lower, clip_upper)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
        means["clip_fraction_dual"] = ((advantages < 0) & (ratio.detach() > dual_clip)).to(ratio.dtype)
    means["approx_kl"] = k3(old_log_probs, log_probs.detach())
    return TokenLoss(loss, means, {"ratio_max": ratio.detach()})


def sequence_clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, row: Tensor, *, clip_lower: float, clip_upper: float
) -> TokenLoss:
    """The clipped loss with one ratio for all tokens of a response: the geometric mean of theirs.

        s_i = exp(mean over the tokens t of i of (log_probs_t - old_log_probs_t))
        loss of each token of i = -min(s_i A, clip(s_i, 1 - clip_lower, 1 + clip_upper) A)

    With `sequence_mean` this is the loss of GSPO, and so is its gradient: each token carries that of its own
    log-prob, s_i A grad log_probs_t (the form GSPO-token, which allows advantages per token).

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient. All tokens of a row.
        old_log_probs: (N,) float, under the policy at the start of the step.
        advantages: (N,) float.
        row: (N,) int64, the rollout of each token; rows are whole, a row never lies in two micro-batches.
        clip_lower: the ratio is clipped below at 1 - this; in (0, 1].
        clip_upper: the ratio is clipped above at 1 + this; above 0.

    Returns:
        Loss and metrics as `clipped_policy_loss` gives them, of the ratio of the response; `approx_kl` is of tokens.

    Raises:
        ValueError: the four do not have one shape.

    Source: Zheng et al., GSPO, arXiv:2507.18071, equations 5 and 7 (objective, ratio), 13 and 14 (GSPO-token).
    """
    _check_one_shape(log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages, row=row)
    of_tokens = log_ratio(log_probs, old_log_probs)
    num_rows = int(row.amax()) + 1 if len(row) else 0
    of_rows = row_sums(of_tokens.detach(), row, num_rows) / row_lengths(row, num_rows).clamp(min=1)
    own = log_probs - log_probs.detach()  # 0, with the gradient of the token
    ratio = (of_rows[row].to(log_probs.dtype) + own).exp()
    means = _clip_fractions(ratio, advantages, clip_lower, clip_upper)
    means["approx_kl"] = k3(old_log_probs, log_probs.detach())
    return TokenLoss(_clipped(ratio, advantages, clip_lower, clip_upper), means, {"ratio_max": ratio.detach()})


def weighted_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_lower: float, clip_upper: float
) -> TokenLoss:
    """Policy gradient with a clipped importance weight: every token keeps a gradient.

        loss = -stop_gradient(clip(r, 1 - clip_lower, 1 + clip_upper)) A log_probs,   r = exp(log_probs - old_log_probs)

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        old_log_probs: (N,) float, under the policy at the start of the step.
        advantages: (N,) float.
        clip_lower: the weight is at least 1 - this; 1 is no bound.
        clip_upper: the weight is at most 1 + this; above 0.

    Returns:
        Loss, and: `clip_fraction_lower` 1 where r < 1 - clip_lower, `clip_fraction_upper` 1 where r > 1 + clip_upper,
        whatever A; `approx_kl` the k3 estimate of KL(old || new), in nats; `ratio_max` r.

    Raises:
        ValueError: the three do not have one shape.

    Source: MiniMax, MiniMax-M1 (CISPO), arXiv:2506.13585, equations 4 and 5.
    """
    _check_one_shape(log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    ratio = log_ratio(log_probs, old_log_probs).exp().detach()
    weight = ratio.clamp(1 - clip_lower, 1 + clip_upper)
    means = {
        "clip_fraction_lower": (ratio < 1 - clip_lower).to(ratio.dtype),
        "clip_fraction_upper": (ratio > 1 + clip_upper).to(ratio.dtype),
        "approx_kl": k3(old_log_probs, log_probs.detach()),
    }
    return TokenLoss(-weight * advantages * log_probs, means, {"ratio_max": ratio})


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float | None) -> TokenLoss:
    """Squared error of the critic's values.

        loss = 1/2 max((V - R)^2, (V' - R)^2),   V' = V_old + clip(V - V_old, -clip, clip)

    The larger of the two: a value that has moved by more than the clip towards R is not pulled further.

    Args:
        values: (N,) float, the critic that learns, before each token is chosen; carries the gradient.
        old_values: (N,) float, the critic at the start of the step.
        returns: (N,) float, what it should have said.
        clip: in units of reward, above 0; None for 1/2 (V - R)^2.

    Returns:
        Loss, and `value_error` the squared distance; with a clip `value_clip_fraction`, 1 where the clipped one counts.

    Raises:
        ValueError: the three do not have one shape.

    Source: Schulman et al., PPO, arXiv:1707.06347, equation 9 (squared error); the clip is OpenAI Baselines' (ppo2).
    """
    _check_one_shape(values=values, old_values=old_values, returns=returns)
    error = (values - returns).square()
    means = {"value_error": error.detach()}
    if clip is None:
        return TokenLoss(error / 2, means)
    bounded = (old_values + (values - old_values).clamp(-clip, clip) - returns).square()
    means["value_clip_fraction"] = (bounded > error).detach().to(error.dtype)
    return TokenLoss(torch.maximum(error, bounded) / 2, means)


def kl_penalty(
    log_probs: Tensor, reference_log_probs: Tensor, *, coefficient: float, estimator: KlEstimator = "k3"
) -> TokenLoss:
    """KL penalty to the reference policy.

        loss = coefficient * estimator of KL(policy || reference)

    Args:
        log_probs: (N,) float, under the policy that learns; carries the gradient.
        reference_log_probs: (N,) float, under the reference policy.
        coefficient: loss per nat.
        estimator: "k1", "k2" or "k3"; `autoclave.algorithms.kl` says what each means as a loss.

    Returns:
        Loss, and `reference_kl`, the estimate in nats.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, equations 3 and 4.
    """
    divergence = kl_estimate(estimator, log_probs, reference_log_probs)
    return TokenLoss(coefficient * divergence, {"reference_kl": divergence.detach()})


def entropy_bonus(entropy: Tensor, *, coefficient: float) -> TokenLoss:
    """Entropy bonus: loss = -coefficient * entropy.

    Args:
        entropy: (N,) float, in nats, of the policy at each token; carries the gradient.
        coefficient: loss per nat.

    Returns:
        Loss, and `entropy` in nats.

    Source: Schulman et al., PPO, arXiv:1707.06347, equation 9.
    """
    return TokenLoss(-coefficient * entropy, {"entropy": entropy.detach()})


def controlled_entropy_bonus(entropy: Tensor, entropy_coefficient: Tensor) -> TokenLoss:
    """The bonus with a coefficient that a controller sets: loss = -entropy_coefficient * entropy, (N,) each.

    Source: as `entropy_bonus`.
    """
    return TokenLoss(-entropy_coefficient * entropy, {"entropy": entropy.detach()})


def _clipped(ratio: Tensor, advantages: Tensor, clip_lower: float, clip_upper: float) -> Tensor:
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_lower, 1 + clip_upper) * advantages)


def _clip_fractions(ratio: Tensor, advantages: Tensor, clip_lower: float, clip_upper: float) -> dict[str, Tensor]:
    seen = ratio.detach()
    return {
        "clip_fraction_lower": ((advantages < 0) & (seen < 1 - clip_lower)).to(seen.dtype),
        "clip_fraction_upper": ((advantages > 0) & (seen > 1 + clip_upper)).to(seen.dtype),
    }


def _check_one_shape(**columns: Tensor) -> None:
    if len({column.shape for column in columns.values()}) > 1:
        shapes = ", ".join(str(tuple(column.shape)) for column in columns.values())
        raise ValueError(f"{', '.join(columns)} must have one shape, not {shapes}")
