"""Importance sampling for the log-prob mismatch between sampler and trainer.

The sampler computes with other kernels and number formats, and in asynchronous schedules with older weights. The ratio
of both probabilities corrects for it in the mean, at the price of noise; so it is bounded.

    log w_t = old_log_probs_t - sampler_log_probs_t          token
    log w_t = sum over the tokens of the response            sequence
    log w_t = mean over the tokens of the response           geometric

`token` has the least noise and some bias, `sequence` is unbiased and the noisiest; `geometric` is a measure of how far
the two are apart that does not grow with length, good for masks with narrow bounds. Logarithms are cut at +-20.
"""

from typing import Literal

import torch
from torch import Tensor

from autoclave.algorithms.kl import LOG_RATIO_LIMIT, log_ratio
from autoclave.algorithms.packed import check_tokens, require_choice, row_lengths, row_sums

Level = Literal["token", "sequence", "geometric"]


def truncated_importance(
    old_log_probs: Tensor, sampler_log_probs: Tensor, row: Tensor, *, level: Level, upper: float
) -> Tensor:
    """Truncated importance ratios: min(w, upper).

    Args:
        old_log_probs: (N,) float, under the trainer's policy at the start of the step.
        sampler_log_probs: (N,) float, under the policy that sampled, as the sampler computed them.
        row: (N,) int64, the rollout of each token; rows are whole.
        level: of what the ratio is, see above.
        upper: largest factor, above 0.

    Returns:
        (N,) float64, in (0, upper].

    Raises:
        ValueError: the first two are not both (N,), or `level` is none of these words.

    Source: Ionides, "Truncated Importance Sampling", 2008; for samplers of language models Yao et al., "Your Efficient
    RL Framework Secretly Brings You Off-Policy RL Training", 2025 (token level). The default 2 is that of verl and
    slime.
    """
    return _ratios(old_log_probs, sampler_log_probs, row, level).clamp(max=upper)


def masked_importance(
    old_log_probs: Tensor, sampler_log_probs: Tensor, row: Tensor, *, level: Level, lower: float, upper: float
) -> Tensor:
    """Masked importance ratios: w where lower <= w <= upper, else 0.

    A token or response that is left out still counts in the mean of the loss.

    Args:
        old_log_probs: (N,) float; as in `truncated_importance`, so are the next two.
        sampler_log_probs: (N,) float.
        row: (N,) int64.
        level: of what the ratio is, see above.
        lower: in [0, 1].
        upper: 1 or more.

    Returns:
        (N,) float64.

    Raises:
        ValueError: the first two are not both (N,), or `level` is none of these words.

    Source: Ling team, "Every Step Evolves" (IcePop), arXiv:2510.18855 (token level, 0.5 to 5); Liu et al., "When Speed
    Kills Stability", 2025 (sequence and geometric level).
    """
    ratios = _ratios(old_log_probs, sampler_log_probs, row, level)
    return torch.where((ratios >= lower) & (ratios <= upper), ratios, 0.0)


def _ratios(old_log_probs: Tensor, sampler_log_probs: Tensor, row: Tensor, level: Level) -> Tensor:
    """(N,) float64: w of each token."""
    require_choice("level", level, Level)
    check_tokens(row, old_log_probs=old_log_probs, sampler_log_probs=sampler_log_probs)
    of_tokens = log_ratio(old_log_probs.double(), sampler_log_probs.double())
    if level == "token":
        return of_tokens.exp()
    num_rows = int(row.amax()) + 1 if len(row) else 0
    of_rows = row_sums(of_tokens, row, num_rows)
    if level == "geometric":
        of_rows = of_rows / row_lengths(row, num_rows).clamp(min=1)
    return of_rows.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()[row]
