"""RLOO: the plain policy gradient of whole responses, with the mean of the others of a group as baseline.

Source: Ahmadian et al., "Back to Basics", arXiv:2402.14740, section 2.3.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import sequence_sum
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import policy_gradient_loss
from autoclave.algorithms.options import correction, filters, fixed_kl, kl_in_rewards, policy_term
from autoclave.config.algorithm import RlooConfig


def rloo(config: RlooConfig) -> Algorithm:
    """The choices of RLOO."""
    others = partial(group_token_advantages, baseline="leave_one_out", scale="none")
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(
            *kl_in_rewards(config.kl_coefficient, config.kl_estimator),
            Equation(Column.ADVANTAGES, ColumnFunction(others)),
        ),
        weighting=ColumnFunction(sequence_sum),
        terms=(policy_term(ColumnFunction(policy_gradient_loss)),),
        correction=correction(config),
        controllers=fixed_kl(config.kl_coefficient),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
