"""The choices of `damped`."""

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
    mask_no_verdict,
    token_mean,
)
from damped.settings import DampedConfig


def damped_advantages(advantages: Tensor, *, negative_weight: float) -> Tensor:
    """(N,): negative advantages times `negative_weight`. The name of a parameter is that of the column it reads."""
    return torch.where(advantages < 0, negative_weight * advantages, advantages)


def damped(config: DampedConfig) -> Algorithm:
    """The algorithm of these settings."""
    return Algorithm(
        name=config.name,
        filters=(mask_no_verdict,),
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
                vanishes_with=Column.ADVANTAGES,
            ),
        ),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
