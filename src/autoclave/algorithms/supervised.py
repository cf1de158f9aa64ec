"""Supervised fine-tuning as an algorithm: every response is a demonstration, and all its tokens become likelier.

Source: Ouyang et al., InstructGPT, arXiv:2203.02155, section 3.5 (the supervised stage).
"""

from __future__ import annotations

import torch
from torch import Tensor

from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation, LossTerm
from autoclave.algorithms.losses import TokenLoss


def negative_log_likelihood(log_probs: Tensor) -> TokenLoss:
    """Cross-entropy of each token: loss = -log_probs, (N,) in nats."""
    return TokenLoss(-log_probs)


def _no_advantages(row: Tensor) -> Tensor:
    return torch.zeros(len(row))


def supervised() -> Algorithm:
    """Mean cross-entropy over the tokens of the responses; rewards are not looked at."""
    return Algorithm(
        name="supervised",
        filters=(),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(_no_advantages)),),
        weighting=ColumnFunction(token_mean),
        terms=(LossTerm("likelihood", ColumnFunction(negative_log_likelihood)),),
    )
