"""GRPO+: GRPO without KL and entropy terms, with a higher upper clip, overlong filtering and a mean over tokens.

Source: the DeepCoder report (GRPO+); Yu et al., DAPO, arXiv:2503.14476, sections 3.1, 3.3 and 3.4.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, LossTerm
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.masks import mask_no_verdict, mask_overlong
from autoclave.config.algorithm import GrpoPlusConfig


def grpo_plus(config: GrpoPlusConfig) -> Algorithm:
    """The choices of GRPO+."""
    policy = ColumnFunction(
        partial(clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper),
        reads=(Column.LOG_PROBS, Column.OLD_LOG_PROBS, Column.ADVANTAGES),
    )
    return Algorithm(
        name=config.name,
        filters=(mask_no_verdict, mask_overlong) if config.mask_overlong else (mask_no_verdict,),
        advantage=ColumnFunction(
            partial(group_token_advantages, scale="std"),
            reads=(Column.REWARDS, Column.GROUP, Column.TRAINS, Column.ROW),
        ),
        weighting=token_mean,
        terms=(LossTerm("policy", policy, is_zero_without_advantage=True),),
    )
