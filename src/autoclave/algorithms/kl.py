"""Estimators of KL(p || q) per token, from the log-probs of the tokens alone. Pure and differentiable.

For a token x sampled from p, with d = log q(x) - log p(x):

    estimator   value            mean over x ~ p                           always >= 0
    k1          -d               KL(p || q) exactly                        no
    k2          d^2 / 2          close to KL while p and q are close       yes
    k3          e^d - 1 - d      KL(p || q) exactly, less noise than k1    yes

As losses they differ more than as values. The gradient by log p of k1 is 1 (it says nothing about q), of k2 it is -d
(on average the gradient of KL(p || q)), of k3 it is 1 - e^d (on average that of KL(q || p)).

Source: Schulman, "Approximating KL Divergence", 2020, http://joschu.net/blog/kl-approx.html.
"""

from typing import Literal

from torch import Tensor

from autoclave.algorithms.packed import require_choice

KlEstimator = Literal["k1", "k2", "k3"]

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are cut at this size, so that their exponentials stay finite; beyond it the gradient is 0."""


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Logarithm of the ratio of two probabilities, from their logarithms, cut at +-20."""
    return (numerator - denominator).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k1(log_probs: Tensor, other_log_probs: Tensor) -> Tensor:
    """-d: the unbiased estimate, which may be negative.

    Args:
        log_probs: (N,) float, natural logarithms under p, which the tokens were sampled from.
        other_log_probs: (N,) float, under q.

    Returns:
        (N,), in nats.
    """
    return -log_ratio(other_log_probs, log_probs)


def k2(log_probs: Tensor, other_log_probs: Tensor) -> Tensor:
    """d^2 / 2: slightly biased, never negative. Arguments and result as in `k1`."""
    return log_ratio(other_log_probs, log_probs).square() / 2


def k3(log_probs: Tensor, other_log_probs: Tensor) -> Tensor:
    """e^d - 1 - d: unbiased and never negative (up to rounding). Arguments and result as in `k1`.

    Source: also Shao et al., DeepSeekMath, arXiv:2402.03300, equation 4.
    """
    difference = log_ratio(other_log_probs, log_probs)
    return difference.expm1() - difference  # e^d - 1 - d loses all digits for small d


def kl_estimate(estimator: KlEstimator, log_probs: Tensor, other_log_probs: Tensor) -> Tensor:
    """The estimate by the estimator of this name. Arguments and result as in `k1`; ValueError for another name."""
    require_choice("estimator", estimator, KlEstimator)
    return {"k1": k1, "k2": k2, "k3": k3}[estimator](log_probs, other_log_probs)
