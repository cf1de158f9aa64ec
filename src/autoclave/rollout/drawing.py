"""Sampling of tokens from logits, each by a random number of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autoclave.rollout.interface import SamplingParameters

WHOLE = 2.0**48
"""Weight of a probability of 1, where tokens are drawn; sums of so many whole numbers are exact in an int64."""
WINDOW = 64
"""Tokens of each row whose random numbers are laid side by side at a time."""


@dataclass(frozen=True, slots=True)
class RowParameters:
    """Sampling parameters of R rows, on the device of their logits; known before a token is drawn: nothing waits."""

    temperature: Tensor
    """(R, 1) float32; 0 takes the most likely token, whose log-prob is then that at temperature 1."""
    top_p: Tensor
    """(R, 1) float64; 1 keeps all."""
    has_greedy: bool
    has_nucleus: bool

    @staticmethod
    def of(rows: Sequence[SamplingParameters], device: torch.device) -> "RowParameters":
        temperatures, shares = [each.temperature for each in rows], [each.top_p for each in rows]
        return RowParameters(
            torch.tensor(temperatures, dtype=torch.float32, device=device)[:, None],
            torch.tensor(shares, dtype=torch.float64, device=device)[:, None],
            has_greedy=0 in temperatures,
            has_nucleus=any(share < 1 for share in shares),
        )


class NextUniforms:
    """The random number of the next token of each row; rows are gone through once in `WINDOW` tokens."""

    def __init__(self, random: Sequence[np.ndarray], tokens: Sequence[Sequence[int]]) -> None:
        """`random` are the numbers of all tokens of each row, `tokens` those so far, to which others append."""
        self._random, self._tokens = random, tokens
        self._rows = np.arange(len(random))
        self._starts = np.zeros(0, dtype=np.int64)
        self._window = np.zeros((len(random), WINDOW))

    def numbers(self) -> np.ndarray:
        """(R,) float64 in [0, 1)."""
        lengths = np.fromiter(map(len, self._tokens), np.int64, len(self._tokens))
        if not len(self._starts) or ((lengths - self._starts) >= WINDOW).any() or (lengths < self._starts).any():
            self._starts = lengths
            for row, start in enumerate(lengths):
                part = self._random[row][start : start + WINDOW]
                self._window[row, : len(part)] = part
        return self._window[self._rows, lengths - self._starts]


def draw(logits: Tensor, uniform: Tensor, rows: RowParameters) -> tuple[Tensor, Tensor]:
    """A token per row by inversion of the distribution function, and its log-prob before top-p: (R,) int64 and float32.

    Args:
        logits: (R, V).
        uniform: (R, 1) float64 in [0, 1).
        rows: how each is sampled.
    """
    scaled = logits.float() / rows.temperature.masked_fill(rows.temperature == 0, 1.0)
    log_probs = torch.log_softmax(scaled, dim=-1)  # (R, V)
    # Whole numbers, because their sums are the same in whatever order a GPU adds them.
    shares = log_probs.exp().mul_(WHOLE).long()  # (R, V)
    if rows.has_nucleus:
        shares = _nucleus(shares, rows.top_p)
    cumulative = shares.cumsum_(-1)
    point = (uniform * cumulative[:, -1:]).long()
    tokens = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    if rows.has_greedy:
        tokens = torch.where(rows.temperature == 0, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0], log_probs.gather(1, tokens)[:, 0]


def _nucleus(shares: Tensor, top_p: Tensor) -> Tensor:
    """(R, V) with zeros outside the smallest set of most likely tokens that holds `top_p` (R, 1); 1 keeps all."""
    ordered, order = shares.sort(dim=-1, descending=True)
    outside = (ordered.cumsum(-1) - ordered >= top_p * WHOLE) & (top_p < 1)  # sums of rounded numbers reach 1 too early
    return shares.masked_fill(outside.scatter(1, order, outside), 0)
