"""GRPO, as published: group-normalised advantages, symmetric clip, mean over sequences, KL to a reference policy.

Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import sequence_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.options import correction, entropy_term, filters, kl_term, policy_term
from autoclave.config.algorithm import GrpoConfig


def grpo(config: GrpoConfig) -> Algorithm:
    """The choices of GRPO."""
    policy = partial(clipped_policy_loss, clip_lower=config.clip, clip_upper=config.clip)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std"))),),
        weighting=ColumnFunction(sequence_mean),
        terms=(
            policy_term(ColumnFunction(policy)),
            *kl_term(config.kl_coefficient, config.kl_estimator),
            *entropy_term(config.entropy_coefficient),
        ),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
