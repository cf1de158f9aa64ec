"""pass@k: the chance that at least one of k programs is right, estimated from n >= k samples. numpy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: int) -> FloatArray:
    """pass@k of each problem, without bias.

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
        ValueError: as `pass_at_k`, or there is no problem.
    """
    chances = pass_at_k(num_samples, num_correct, k)
    if not chances.size:
        raise ValueError("pass@k of no problems is not defined")
    return float(chances.mean())


def _chance(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0  # k samples cannot all be wrong
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
