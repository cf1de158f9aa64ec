"""Estimators of advantages by name, which `algorithm.advantage` puts in place of an algorithm's own.

One of another package is found by its entry point in `autoclave.advantages`, under the name that its settings have in
`autoclave.advantage_settings`: a function from those settings to an `Estimator`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from autoclave.algorithms.advantages import (
    distillation_advantages,
    generalised_advantages,
    generalised_turn_advantages,
    group_token_advantages,
    returns,
    reward_to_go,
    whitened,
    with_outcome,
)
from autoclave.algorithms.algorithm import Algorithm
from autoclave.algorithms.columns import Column, ColumnFunction
from autoclave.algorithms.losses import value_loss
from autoclave.algorithms.parts import Equation, LossTerm
from autoclave.algorithms.rewards import outcome_token_rewards, penalised_rewards, penalised_token_rewards
from autoclave.config.advantage import AdvantageSettings, DistillationAdvantageConfig, GaeSettings
from autoclave.core.plugins import find_plugin


@dataclass(frozen=True, slots=True)
class Estimator:
    """Equations from REWARDS, or from TOKEN_REWARDS if one reads these, to ADVANTAGES; and the loss of a critic."""

    equations: tuple[Equation, ...]
    critic_terms: tuple[LossTerm, ...] = ()


def chain(*functions: Callable[..., Tensor]) -> Estimator:
    """Return the estimator of functions that each give ADVANTAGES, the later ones from those of the earlier."""
    return Estimator(tuple(Equation(Column.ADVANTAGES, ColumnFunction(function)) for function in functions))


def gae(config: GaeSettings) -> Estimator:
    """Return the generalised advantage estimate with the loss of its critic."""
    estimate = partial(generalised_advantages, discount=config.discount, gae_lambda=config.gae_lambda)
    if config.turn_discount is not None or config.turn_lambda is not None:
        turn_lambda = config.gae_lambda if config.turn_lambda is None else config.turn_lambda
        between = {"turn_discount": config.turn_discount or config.discount, "turn_lambda": turn_lambda}
        estimate = partial(generalised_turn_advantages, **estimate.keywords, **between)
    equations = (
        Equation(Column.ADVANTAGES, ColumnFunction(estimate)),
        Equation(Column.RETURNS, ColumnFunction(returns)),
        *(chain(whitened).equations if config.whiten else ()),
    )
    critic = partial(value_loss, clip=config.value_clip)
    return Estimator(equations, (LossTerm("value", ColumnFunction(critic)),))


def distillation(config: DistillationAdvantageConfig) -> Estimator:
    """Return the estimator of on-policy distillation, with the rewards if they have a weight."""
    mixed = (partial(with_outcome, weight=config.reward_weight),) if config.reward_weight else ()
    return chain(distillation_advantages, *mixed)


_centred = partial(group_token_advantages, scale="none")
ESTIMATORS: dict[str, Callable[[Any], Estimator]] = {
    "gae": gae,
    "grpo": lambda _: chain(partial(group_token_advantages, scale="std")),
    "dr_grpo": lambda _: chain(_centred),
    "rloo": lambda _: chain(partial(_centred, baseline="leave_one_out")),
    "reinforce_plus_plus": lambda _: chain(reward_to_go, whitened),
    "reinforce_plus_plus_baseline": lambda _: chain(_centred, whitened),
    "max_rl": lambda _: chain(partial(group_token_advantages, scale="mean")),
    "distillation": distillation,
}


def with_estimator(algorithm: Algorithm, settings: AdvantageSettings) -> Algorithm:
    """Return `algorithm` with the estimator of `settings` in place of its own.

    What the algorithm does to rewards stays. A KL to the reference that it takes from them is taken from those that the
    estimator reads: of each token, or of each response.

    Raises HostError: no installed package has the estimator, or it cannot be loaded. ValueError: the two do not fit
    together.
    """
    name = settings.name
    build = ESTIMATORS.get(name) or find_plugin("autoclave.advantages", name, "algorithm.advantage", ESTIMATORS)
    estimator = build(settings)
    if not isinstance(estimator, Estimator):
        raise ValueError(
            f"algorithm.advantage = {name}: gives {estimator!r}; must be an Estimator, such as chain(function)"
        )
    by_token = any(Column.TOKEN_REWARDS in equation.compute.reads for equation in estimator.equations)
    own = [each for each in algorithm.advantage if each.compute.function is not penalised_rewards]
    rewards = [each for each in own if each.gives is Column.REWARDS]
    kl = [each for each in own if each.gives is Column.KL]
    if by_token:
        rewards.append(Equation(Column.TOKEN_REWARDS, ColumnFunction(outcome_token_rewards)))
    if kl and by_token:
        kl.append(Equation(Column.TOKEN_REWARDS, ColumnFunction(penalised_token_rewards)))
    elif kl:
        kl.append(Equation(Column.REWARDS, ColumnFunction(penalised_rewards)))
    return replace(algorithm, advantage=(*rewards, *kl, *estimator.equations), critic_terms=estimator.critic_terms)
