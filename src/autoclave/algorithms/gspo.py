"""GSPO: one clipped ratio per response, the geometric mean of those of its tokens.

Source: Zheng et al., "Group Sequence Policy Optimization", arXiv:2507.18071, section 4.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import sequence_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import sequence_clipped_policy_loss
from autoclave.algorithms.options import correction, filters, policy_term
from autoclave.config.algorithm import GspoConfig


def gspo(config: GspoConfig) -> Algorithm:
    """The choices of GSPO."""
    policy = partial(sequence_clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std"))),),
        weighting=ColumnFunction(sequence_mean),
        terms=(policy_term(ColumnFunction(policy)),),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
