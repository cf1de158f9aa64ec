"""How a token is drawn from logits, by a random number of its own."""

from __future__ import annotations

import torch
from torch import Tensor

WHOLE = 2.0**48
"""What a probability of 1 is, where tokens are drawn; a float64 has room for it and five bits more."""


def draw(logits: Tensor, *, uniform: Tensor, temperature: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """A token per row by inversion of the distribution function, and its log-prob before top-p: (R,) int64 and float32.

    Args:
        logits: (R, V).
        uniform: (R, 1) float64 in [0, 1).
        temperature: (R, 1) float32; 0 takes the most likely token, whose log-prob is then that at temperature 1.
        top_p: (R, 1) float64; 1 keeps all.
    """
    is_greedy = temperature == 0
    log_probs = torch.log_softmax(logits.float() / torch.where(is_greedy, 1.0, temperature), dim=-1)  # (R, V)
    # Whole numbers, because their sums are the same in whatever order a GPU adds them.
    shares = log_probs.double().exp_().mul_(WHOLE).long()  # (R, V)
    if bool((top_p < 1).any()):
        shares = _nucleus(shares, top_p)
    cumulative = shares.cumsum(-1)
    point = (uniform * cumulative[:, -1:]).long()
    tokens = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    if bool(is_greedy.any()):
        tokens = torch.where(is_greedy, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0], log_probs.gather(1, tokens)[:, 0]


def _nucleus(shares: Tensor, top_p: Tensor) -> Tensor:
    """(R, V) with zeros outside the smallest set of most likely tokens that holds `top_p` (R, 1); 1 keeps all."""
    ordered, order = shares.sort(dim=-1, descending=True)
    outside = (ordered.cumsum(-1) - ordered >= top_p * WHOLE) & (top_p < 1)  # sums of rounded numbers reach 1 too early
    return shares.masked_fill(outside.scatter(1, order, outside), 0)
