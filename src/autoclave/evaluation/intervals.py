"""Confidence intervals of measured figures. numpy only.

`share_interval` is for a mean of shares over problems (pass@1), `bootstrap_interval` for any other mean over problems
(a difference, a reward), `wilson_interval` for a plain share of independent trials.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_RESAMPLED_AT_ONCE = 1 << 22
"""Numbers drawn at once, which bounds memory (32 MiB)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds that hold the true figure with the given confidence."""

    lower: float
    upper: float


def mean_or_nan(figures: Sequence[float]) -> float:
    return float(np.mean(figures)) if figures else math.nan


def bootstrap_interval(
    values: ArrayLike, *, seed: int = 0, confidence: float = 0.95, num_resamples: int = 10_000
) -> Interval:
    """Interval of the mean over other problems of the same kind: percentile bootstrap over problems.

    Problems are drawn with replacement, as many as there are; the bounds are the quantiles (1 -+ confidence) / 2 of the
    means. Samples of one problem are not resampled: their noise is part of each value.

    Args:
        values: (problems,), one figure per problem.
        seed: equal seeds give equal bounds.
        confidence: in (0, 1).
        num_resamples: at least 1.

    Raises:
        ValueError: `values` is empty, not 1-D or not finite, or an option is out of range.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    figures = np.asarray(values, dtype=np.float64)
    if figures.ndim != 1 or not figures.size or not np.isfinite(figures).all():
        raise ValueError("values must be at least one finite number, one per problem")
    if num_resamples < 1:
        raise ValueError(f"num_resamples = {num_resamples}: must be at least 1")
    tail = _tail(confidence)
    generator = np.random.default_rng(seed)
    at_once = max(1, _RESAMPLED_AT_ONCE // figures.size)
    means: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    for start in range(0, num_resamples, at_once):
        drawn = generator.integers(figures.size, size=(min(at_once, num_resamples - start), figures.size))
        means.append(figures[drawn].mean(axis=1))
    lower, upper = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(lower), float(upper))


def share_interval(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Bounds of a mean of shares, by Wilson with as many trials as explain the variance of that mean.

        n = p (1 - p) / var(mean),   p = mean(values),   var(mean) = var(values) / problems

    With values of 0 and 1 alone, n is the number of problems, as it is where all values are equal. Near 0 and 1 these
    bounds keep their coverage, and those of the bootstrap do not.

    Args:
        values: (problems,), in [0, 1].
        confidence: in (0, 1).

    Raises:
        ValueError: `values` is empty, not 1-D or not within [0, 1], or the confidence is out of range.
    """
    shares = np.asarray(values, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("values must be at least one share from 0 to 1, one per problem")
    mean, trials = float(shares.mean()), float(shares.size)
    if variance := float(shares.var()):  # the variance of values that differ by rounding alone may be 0
        trials *= mean * (1 - mean) / variance
    return wilson_interval(mean * trials, trials, confidence=confidence)


def wilson_interval(num_successes: float, num_trials: float, *, confidence: float = 0.95) -> Interval:
    """Interval of the true share of successes; valid also for few trials and for shares of 0 and 1.

        (p + z^2 / 2n  -+  z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),   p = successes / n

    Args:
        num_successes: of independent trials with one chance.
        num_trials: n, at least 1; a fraction where trials are effective ones.
        confidence: in (0, 1); z is the normal quantile of it, 1.96 for 0.95.

    Raises:
        ValueError: not 0 <= num_successes <= num_trials, no trial, or the confidence is out of range.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22, 1927.
    """
    if not num_trials >= 1 or not 0 <= num_successes <= num_trials:
        raise ValueError(f"{num_successes} of {num_trials}: needs 0 <= num_successes <= num_trials, and a trial")
    z = NormalDist().inv_cdf(1 - _tail(confidence))
    share = num_successes / num_trials
    shrink = 1 + z * z / num_trials
    centre = (share + z * z / (2 * num_trials)) / shrink
    half_width = z * math.sqrt(share * (1 - share) / num_trials + z * z / (4 * num_trials * num_trials)) / shrink
    # At shares of 0 and 1 the bound is exact; rounding would leave the share outside its own interval.
    lower = 0.0 if num_successes == 0 else centre - half_width
    upper = 1.0 if num_successes == num_trials else centre + half_width
    return Interval(lower, upper)


def _tail(confidence: float) -> float:
    """Return the probability left out on each side."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}: must be between 0 and 1")
    return (1 - confidence) / 2


FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: int) -> FloatArray:
    """Return unbiased pass@k of each problem.

        pass@k = 1 - C(n - c, k) / C(n, k) = 1 - product over i = n - c + 1 .. n of (1 - k / i)

    The product never meets a large number, and is 0 as soon as fewer than k samples are wrong.

    Args:
        num_samples: n, a number for all problems or one of each, (problems,).
        num_correct: c, (problems,).
        k: at least 1, at most the smallest n.

    Returns:
        (problems,) float64 in [0, 1].

    Raises:
        ValueError: not 1 <= k <= n, not 0 <= c <= n, or a number is not whole.

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, section 2.1.
    """
    correct = np.atleast_1d(np.asarray(num_correct))
    samples = np.broadcast_to(np.asarray(num_samples), correct.shape)
    if correct.ndim != 1 or not all(np.issubdtype(array.dtype, np.integer) for array in (correct, samples)):
        raise ValueError("num_samples and num_correct must be whole numbers, one of each problem")
    if correct.size and not 1 <= k <= int(samples.min()):
        raise ValueError(f"k = {k}: must be at least 1 and at most the number of samples, {samples.min()}")
    if np.any(correct < 0) or np.any(correct > samples):
        raise ValueError("num_correct must be at least 0 and at most num_samples")
    return np.array([_chance(int(n), int(c), k) for n, c in zip(samples, correct, strict=True)], dtype=np.float64)


def mean_pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: int) -> float:
    """pass@k of a benchmark: the mean over problems, each with the same weight however often it was sampled.

    Raises:
        ValueError: as `pass_at_k`, or without problems.
    """
    chances = pass_at_k(num_samples, num_correct, k)
    if not chances.size:
        raise ValueError("pass@k of no problems is not defined")
    return float(chances.mean())


def _chance(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0  # k samples cannot all be wrong
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
