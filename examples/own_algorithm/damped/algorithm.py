"""The algorithm `damped`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autoclave.algorithms import (
    Algorithm,
    Column,
    ColumnFunction,
    Equation,
    LossTerm,
    clipped_policy_loss,
    group_token_advantages,
    token_mean,
)
from damped.settings import DampedConfig


def damped_advantages(advantages: Tensor, *, negative_weight: float) -> Tensor:
    """Return the advantages (N,), negative ones times `negative_weight`. The first parameter names a column."""
    return torch.where(advantages < 0, negative_weight * advantages, advantages)


def damped(config: DampedConfig) -> Algorithm:
    """Return the algorithm of these settings."""
    return Algorithm(
        name=config.name,
        advantage=(
            Equation(Column.ADVANTAGES, ColumnFunction(group_token_advantages)),
            Equation(
                Column.ADVANTAGES,
                ColumnFunction(partial(damped_advantages, negative_weight=config.negative_weight)),
            ),
        ),
        weighting=ColumnFunction(token_mean),
        terms=(
            LossTerm(
                "policy",
                ColumnFunction(partial(clipped_policy_loss, clip_lower=0.2, clip_upper=0.2)),
                skip_if_zero=Column.ADVANTAGES,
            ),
        ),
    )
