"""Dr. GRPO: GRPO without the two divisions that bias it, by the deviation of a group and the length of a response.

Source: Liu et al., "Understanding R1-Zero-Like Training", arXiv:2503.20783, section 3.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import budget_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.options import correction, filters, policy_term
from autoclave.config.algorithm import DrGrpoConfig


def dr_grpo(config: DrGrpoConfig) -> Algorithm:
    """The choices of Dr. GRPO."""
    policy = partial(clipped_policy_loss, clip_lower=config.clip, clip_upper=config.clip)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="none"))),),
        weighting=ColumnFunction(budget_mean),
        terms=(policy_term(ColumnFunction(policy)),),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
