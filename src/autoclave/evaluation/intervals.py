"""Confidence intervals of measured figures. numpy only.

`share_interval` is for a mean of shares over problems (pass@1), `bootstrap_interval` for any other mean over problems
(a difference, a reward), `wilson_interval` for a plain share of independent trials.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

TAIL = (1 - 0.95) / 2
"""Probability that a 95 % interval leaves out on each side."""

RESAMPLES = 10_000
"""Resamples of the problems in a bootstrap."""

_RESAMPLED_AT_ONCE = 1 << 22
"""Numbers drawn at once, which bounds memory (32 MiB)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds that hold the true figure with a confidence of 95 %."""

    lower: float
    upper: float


def mean_or_nan(figures: Sequence[float]) -> float:
    return float(np.mean(figures)) if figures else math.nan


def bootstrap_interval(values: ArrayLike) -> Interval:
    """Interval of the mean over other problems of the same kind: percentile bootstrap over problems.

    Problems are drawn with replacement, as many as there are; the bounds are the quantiles `TAIL` and 1 - `TAIL` of the
    means. Samples of one problem are not resampled: their noise is part of each value. Equal values give equal bounds.

    Args:
        values: (problems,), one figure per problem.

    Raises:
        ValueError: `values` is empty, not 1-D or not finite.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    figures = np.asarray(values, dtype=np.float64)
    if figures.ndim != 1 or not figures.size or not np.isfinite(figures).all():
        raise ValueError("values must be at least one finite number, one per problem")
    generator = np.random.default_rng(0)
    at_once = max(1, _RESAMPLED_AT_ONCE // figures.size)
    means: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    for start in range(0, RESAMPLES, at_once):
        drawn = generator.integers(figures.size, size=(min(at_once, RESAMPLES - start), figures.size))
        means.append(figures[drawn].mean(axis=1))
    lower, upper = np.quantile(np.concatenate(means), [TAIL, 1 - TAIL])
    return Interval(float(lower), float(upper))


def share_interval(values: ArrayLike) -> Interval:
    """Bounds of a mean of shares, by Wilson with as many trials as explain the variance of that mean.

        n = p (1 - p) / var(mean),   p = mean(values),   var(mean) = var(values) / problems

    With values of 0 and 1 alone, n is the number of problems, as it is where all values are equal. Near 0 and 1 these
    bounds keep their coverage, and those of the bootstrap do not.

    Args:
        values: (problems,), in [0, 1].

    Raises:
        ValueError: `values` is empty, not 1-D or not within [0, 1].
    """
    shares = np.asarray(values, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("values must be at least one share from 0 to 1, one per problem")
    mean, trials = float(shares.mean()), float(shares.size)
    if variance := float(shares.var()):  # the variance of values that differ by rounding alone may be 0
        trials *= mean * (1 - mean) / variance
    return wilson_interval(mean * trials, trials)


def wilson_interval(num_successes: float, num_trials: float) -> Interval:
    """Interval of the true share of successes; valid also for few trials and for shares of 0 and 1.

        (p + z^2 / 2n  -+  z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),   p = successes / n,  z = 1.96

    Args:
        num_successes: of independent trials with one chance.
        num_trials: n, at least 1; a fraction where trials are effective ones.

    Raises:
        ValueError: not 0 <= num_successes <= num_trials, or no trial.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22, 1927.
    """
    if not num_trials >= 1 or not 0 <= num_successes <= num_trials:
        raise ValueError(f"{num_successes} of {num_trials}: needs 0 <= num_successes <= num_trials, and a trial")
    z = NormalDist().inv_cdf(1 - TAIL)
    share = num_successes / num_trials
    shrink = 1 + z * z / num_trials
    centre = (share + z * z / (2 * num_trials)) / shrink
    half_width = z * math.sqrt(share * (1 - share) / num_trials + z * z / (4 * num_trials * num_trials)) / shrink
    # At shares of 0 and 1 the bound is exact; rounding would leave the share outside its own interval.
    lower = 0.0 if num_successes == 0 else centre - half_width
    upper = 1.0 if num_successes == num_trials else centre + half_width
    return Interval(lower, upper)


def mean_pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> float:
    """Return the mean of unbiased pass@k over problems with at least k samples, each with the same weight; NaN without.

        pass@k = 1 - C(n - c, k) / C(n, k) = 1 - product over i = n - c + 1 .. n of (1 - k / i)

    The product never meets a large number, and is 0 as soon as fewer than k samples are wrong.

    Args:
        counts: of each problem n, its samples, and c, how many of them are right.
        k: at least 1.

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, section 2.1.
    """
    return mean_or_nan([_chance(n, c, k) for n, c in counts if n >= k])


def _chance(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0  # k samples cannot all be wrong
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
