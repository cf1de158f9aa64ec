"""DAPO: GRPO with a higher upper clip, a mean over tokens, a soft length limit, groups sampled again, and no KL.

Source: Yu et al., DAPO, arXiv:2503.14476, sections 3.1 to 3.4.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.options import correction, filters, policy_term
from autoclave.algorithms.rewards import soft_overlong_rewards
from autoclave.config.algorithm import DapoConfig


def dapo(config: DapoConfig) -> Algorithm:
    """The choices of DAPO."""
    policy = partial(clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    softened = partial(soft_overlong_rewards, buffer=config.overlong_buffer, penalty=config.overlong_penalty)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(
            Equation(Column.REWARDS, ColumnFunction(softened)),
            Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std"))),
        ),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)),),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
        max_resamples=config.max_resamples,
    )
