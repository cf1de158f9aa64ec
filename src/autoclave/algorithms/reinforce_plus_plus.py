"""REINFORCE++: advantages normalised over the whole batch instead of each group; no critic.

With `baseline: none` every response is judged by its reward and the KL that follows each token; with `group` the mean
of its group is subtracted first, and the KL is a term of the loss.

Source: Hu et al., REINFORCE++, arXiv:2501.03262.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages, reward_to_go, whitened
from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.options import correction, filters, fixed_kl, kl_in_token_rewards, kl_term, policy_term
from autoclave.algorithms.rewards import outcome_token_rewards
from autoclave.config.algorithm import ReinforcePlusPlusConfig


def reinforce_plus_plus(config: ReinforcePlusPlusConfig) -> Algorithm:
    """The choices of REINFORCE++, without or with a baseline."""
    return {"none": _without_baseline, "group": _with_baseline}[config.baseline](config)


def _without_baseline(config: ReinforcePlusPlusConfig) -> Algorithm:
    policy = partial(clipped_policy_loss, clip_lower=config.clip, clip_upper=config.clip)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(
            Equation(Column.TOKEN_REWARDS, ColumnFunction(outcome_token_rewards)),
            *kl_in_token_rewards(config.kl_coefficient, "k1"),
            Equation(Column.ADVANTAGES, ColumnFunction(reward_to_go)),
            Equation(Column.ADVANTAGES, ColumnFunction(whitened)),
        ),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)),),
        correction=correction(config),
        controllers=fixed_kl(config.kl_coefficient),
    )


def _with_baseline(config: ReinforcePlusPlusConfig) -> Algorithm:
    policy = partial(clipped_policy_loss, clip_lower=config.clip, clip_upper=config.clip)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(
            Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="none"))),
            Equation(Column.ADVANTAGES, ColumnFunction(whitened)),
        ),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)), *kl_term(config.kl_coefficient, "k2")),
        correction=correction(config),
    )
