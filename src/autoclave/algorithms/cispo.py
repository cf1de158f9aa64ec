"""CISPO: the clipped ratio is a weight of the policy gradient, so no token ever stops learning.

Source: MiniMax, "MiniMax-M1", arXiv:2506.13585, section 3.1.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import weighted_policy_loss
from autoclave.algorithms.options import correction, filters, policy_term
from autoclave.config.algorithm import CispoConfig


def cispo(config: CispoConfig) -> Algorithm:
    """The choices of CISPO."""
    policy = partial(weighted_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std"))),),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)),),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
