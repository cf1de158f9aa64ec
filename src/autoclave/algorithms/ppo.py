"""PPO for language models: advantages from a critic, clipped ratio, mean over tokens, KL to a reference in the reward.

Source: Schulman et al., PPO, arXiv:1707.06347, and GAE, arXiv:1506.02438; the reward with KL is that of Ziegler et al.,
arXiv:1909.08593, and Ouyang et al., InstructGPT, arXiv:2203.02155.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation
from autoclave.algorithms.control import Controller, adapted_kl_coefficient
from autoclave.algorithms.estimators import gae
from autoclave.algorithms.losses import clipped_policy_loss
from autoclave.algorithms.options import correction, entropy_term, filters, fixed_kl, kl_in_token_rewards, policy_term
from autoclave.algorithms.rewards import outcome_token_rewards
from autoclave.config.algorithm import AdaptiveKlConfig, PpoConfig


def ppo(config: PpoConfig) -> Algorithm:
    """The choices of PPO, and the loss of its critic."""
    policy = partial(
        clipped_policy_loss,
        clip_lower=config.clip_lower,
        clip_upper=config.clip_upper,
        dual_clip=config.dual_clip,
    )
    estimator = gae(config)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(
            Equation(Column.TOKEN_REWARDS, ColumnFunction(outcome_token_rewards)),
            *kl_in_token_rewards(config.kl_coefficient, config.kl_estimator),
            *estimator.equations,
        ),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)), *entropy_term(config.entropy_coefficient)),
        critic_terms=estimator.critic_terms,
        correction=correction(config),
        controllers=_kl_controller(config),
    )


def _kl_controller(config: PpoConfig) -> tuple[Controller, ...]:
    match config.kl_controller:
        case AdaptiveKlConfig(target=target, gain=gain):
            follow = partial(adapted_kl_coefficient, target=target, gain=gain)
            return (Controller(Column.KL_COEFFICIENT, (config.kl_coefficient,), follow),)
        case _:
            return fixed_kl(config.kl_coefficient)
