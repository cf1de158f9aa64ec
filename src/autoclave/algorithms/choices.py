"""The algorithms: a function from the settings of each to its `Algorithm`.

One of another package is found by its entry point in `autoclave.algorithms`, under the name that its settings have in
`autoclave.algorithm_settings`: a function from those settings to an `Algorithm`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autoclave.algorithms.advantages import group_token_advantages, reward_to_go, whitened
from autoclave.algorithms.aggregation import budget_mean, sequence_mean, sequence_sum, token_mean
from autoclave.algorithms.algorithm import Algorithm
from autoclave.algorithms.columns import Column, ColumnFunction
from autoclave.algorithms.control import Controller, adapted_kl_coefficient, entropy_until_saturation
from autoclave.algorithms.estimators import gae, with_estimator
from autoclave.algorithms.losses import (
    TokenLoss,
    clipped_policy_loss,
    controlled_entropy_bonus,
    policy_gradient_loss,
    sequence_clipped_policy_loss,
    weighted_policy_loss,
)
from autoclave.algorithms.options import (
    correction,
    entropy_term,
    filters,
    fixed_kl,
    kl_in_rewards,
    kl_in_token_rewards,
    kl_term,
    policy_term,
)
from autoclave.algorithms.parts import Equation, LossTerm
from autoclave.algorithms.rewards import outcome_token_rewards, soft_overlong_rewards
from autoclave.algorithms.trust_region import group_trust
from autoclave.algorithms.variance import without_dominant
from autoclave.config.algorithm import (
    AdaptiveKlConfig,
    AlgorithmSettings,
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    ExchangeableAdvantage,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)
from autoclave.core.errors import ConfigError
from autoclave.core.plugins import find_plugin
from autoclave.core.rollout import MaskReason


def build_algorithm(config: AlgorithmSettings) -> Algorithm:
    """The algorithm that the settings name, with their options bound. It pickles, and holds no tensors.

    The settings that all algorithms have (masks, correction, masked rollouts in the baseline) are applied here, also to
    algorithms of other packages.

    Raises:
        HostError: no installed package has the algorithm or its estimator, or one cannot be loaded.
        ConfigError: its choices do not fit together, or it reads a critic and its settings do not know, or conversely.
    """
    build = CHOICES.get(config.name) or find_plugin("autoclave.algorithms", config.name, "algorithm.name", CHOICES)
    try:
        algorithm = build(config)
        if not isinstance(algorithm, Algorithm):
            raise ValueError(f"its entry point gives {algorithm!r}; must be an Algorithm")
        if isinstance(config, ExchangeableAdvantage) and config.advantage:
            algorithm = with_estimator(algorithm, config.advantage)
        algorithm = replace(
            algorithm,
            filters=(*filters(config), *algorithm.filters),
            correction=algorithm.correction or correction(config),
            include_masked_in_baseline=algorithm.include_masked_in_baseline
            or getattr(config, "include_masked_in_baseline", False),
        )
    except ValueError as error:
        raise ConfigError(f"algorithm.name = {config.name}: {error}") from error
    if algorithm.needs_critic is not config.needs_critic:
        raise ConfigError(
            f"algorithm.name = {config.name}: needs_critic is {config.needs_critic} in its settings, and its equations "
            f"{'read' if algorithm.needs_critic else 'do not read'} old_values. Fix: make needs_critic agree"
        )
    return algorithm


def ppo(config: PpoConfig) -> Algorithm:
    """PPO for language models: advantages from a critic, clipped ratio, mean over tokens, KL in the reward.

    Source: Schulman et al., PPO, arXiv:1707.06347, and GAE, arXiv:1506.02438; the reward with KL is that of Ziegler et
    al., arXiv:1909.08593, and Ouyang et al., InstructGPT, arXiv:2203.02155.
    """
    estimator = gae(config)
    controllers = fixed_kl(config.kl_coefficient)
    if isinstance(adaptive := config.kl_controller, AdaptiveKlConfig):
        follow = partial(adapted_kl_coefficient, target=adaptive.target, gain=adaptive.gain)
        controllers = (Controller(Column.KL_COEFFICIENT, (config.kl_coefficient,), follow),)
    return _algorithm(
        config,
        Equation(Column.TOKEN_REWARDS, ColumnFunction(outcome_token_rewards)),
        *kl_in_token_rewards(config.kl_coefficient, config.kl_estimator),
        *estimator.equations,
        weighting=token_mean,
        policy=_clipped(config.clip_lower, config.clip_upper, dual_clip=config.dual_clip),
        terms=entropy_term(config.entropy_coefficient),
        critic_terms=estimator.critic_terms,
        controllers=controllers,
    )


def grpo(config: GrpoConfig) -> Algorithm:
    """GRPO, as published: group-normalised advantages, symmetric clip, mean over sequences, KL to a reference policy.

    Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.
    """
    return _algorithm(
        config,
        _group_advantages(),
        weighting=sequence_mean,
        policy=_clipped(config.clip, config.clip),
        terms=(*kl_term(config.kl_coefficient, config.kl_estimator), *entropy_term(config.entropy_coefficient)),
    )


def grpo_plus(config: GrpoPlusConfig) -> Algorithm:
    """GRPO+, in both readings of the thesis that names it.

    `report` (chapter 4, as in the DeepCoder report): GRPO without KL and entropy terms, with a higher upper clip and
    overlong filtering. `introduction` (chapter 1): relative-KL clipping, a filter of over-long responses by their
    variance, and an entropy bonus that ends when exploration saturates. Both: groups normalised by deviation, a mean
    over tokens.

    Source: Berkeley EECS-2025-123; the DeepCoder report; Yu et al., DAPO, arXiv:2503.14476, sections 3.1, 3.3 and 3.4.
    """
    policy = _clipped(config.clip_lower, config.clip_upper)
    if config.reading == "report":
        terms = (*kl_term(config.kl_coefficient, "k3"), *entropy_term(config.entropy_coefficient))
        return _algorithm(config, _group_advantages(), weighting=token_mean, policy=policy, terms=terms)
    balanced = partial(without_dominant, limit=config.variance_share_limit)
    exploration = Controller(
        Column.ENTROPY_COEFFICIENT,
        (config.exploration_coefficient,),
        partial(entropy_until_saturation, steps=config.saturation_steps, tolerance=config.saturation_tolerance),
    )
    bonus = LossTerm("entropy", ColumnFunction(controlled_entropy_bonus), skip_if_zero=Column.ENTROPY_COEFFICIENT)
    return _algorithm(
        config,
        _group_advantages(),
        Equation(Column.IN_LOSS, ColumnFunction(balanced), MaskReason.LENGTH_VARIANCE),
        _group_advantages(),
        weighting=token_mean,
        policy=policy,
        terms=(bonus,),
        trust_region=ColumnFunction(partial(group_trust, limit=config.group_kl_limit)),
        controllers=(exploration,),
    )


def dapo(config: DapoConfig) -> Algorithm:
    """DAPO: GRPO with a higher upper clip, a mean over tokens, a soft length limit, groups sampled again, and no KL.

    Source: Yu et al., DAPO, arXiv:2503.14476, sections 3.1 to 3.4.
    """
    softened = partial(soft_overlong_rewards, buffer=config.overlong_buffer, penalty=config.overlong_penalty)
    return _algorithm(
        config,
        Equation(Column.REWARDS, ColumnFunction(softened)),
        _group_advantages(),
        weighting=token_mean,
        policy=_clipped(config.clip_lower, config.clip_upper),
        max_resamples=config.max_resamples,
    )


def dr_grpo(config: DrGrpoConfig) -> Algorithm:
    """Dr. GRPO: GRPO without the divisions that bias it, by the deviation of a group and the length of a response.

    Source: Liu et al., "Understanding R1-Zero-Like Training", arXiv:2503.20783, section 3.
    """
    policy = _clipped(config.clip, config.clip)
    return _algorithm(config, _group_advantages(scale="none"), weighting=budget_mean, policy=policy)


def rloo(config: RlooConfig) -> Algorithm:
    """RLOO: the plain policy gradient of whole responses; baseline: the mean of the other rollouts of the group.

    Source: Ahmadian et al., "Back to Basics", arXiv:2402.14740, section 2.3.
    """
    return _algorithm(
        config,
        *kl_in_rewards(config.kl_coefficient, config.kl_estimator),
        _group_advantages(baseline="leave_one_out", scale="none"),
        weighting=sequence_sum,
        policy=policy_gradient_loss,
        controllers=fixed_kl(config.kl_coefficient),
    )


def reinforce_plus_plus(config: ReinforcePlusPlusConfig) -> Algorithm:
    """REINFORCE++: advantages normalised over the whole batch instead of each group; no critic.

    With `baseline: none` every response is judged by its reward and the KL that follows each token; with `group` the
    mean of its group is subtracted first, and the KL is a term of the loss.

    Source: Hu et al., REINFORCE++, arXiv:2501.03262.
    """
    policy, of_batch = _clipped(config.clip, config.clip), Equation(Column.ADVANTAGES, ColumnFunction(whitened))
    if config.baseline == "group":
        terms = kl_term(config.kl_coefficient, "k2")
        advantages = (_group_advantages(scale="none"), of_batch)
        return _algorithm(config, *advantages, weighting=token_mean, policy=policy, terms=terms)
    return _algorithm(
        config,
        Equation(Column.TOKEN_REWARDS, ColumnFunction(outcome_token_rewards)),
        *kl_in_token_rewards(config.kl_coefficient, "k1"),
        Equation(Column.ADVANTAGES, ColumnFunction(reward_to_go)),
        of_batch,
        weighting=token_mean,
        policy=policy,
        controllers=fixed_kl(config.kl_coefficient),
    )


def gspo(config: GspoConfig) -> Algorithm:
    """GSPO: one clipped ratio per response, the geometric mean of those of its tokens.

    Source: Zheng et al., "Group Sequence Policy Optimization", arXiv:2507.18071, section 4.
    """
    policy = partial(sequence_clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    return _algorithm(config, _group_advantages(), weighting=sequence_mean, policy=policy)


def cispo(config: CispoConfig) -> Algorithm:
    """CISPO: the clipped ratio is a weight of the policy gradient, so every token keeps a gradient.

    Source: MiniMax, "MiniMax-M1", arXiv:2506.13585, section 3.1.
    """
    policy = partial(weighted_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    return _algorithm(config, _group_advantages(), weighting=token_mean, policy=policy)


CHOICES: dict[str, Callable[[Any], Algorithm]] = {
    choice.__name__: choice for choice in (ppo, grpo, grpo_plus, dapo, dr_grpo, rloo, reinforce_plus_plus, gspo, cispo)
}


def _algorithm(
    config: AlgorithmSettings,
    *advantage: Equation,
    weighting: Callable[..., Any],
    policy: Callable[..., Any],
    terms: tuple[LossTerm, ...] = (),
    **others: Any,
) -> Algorithm:
    return Algorithm(
        name=config.name,
        advantage=advantage,
        weighting=ColumnFunction(weighting),
        terms=(policy_term(ColumnFunction(policy)), *terms),
        **others,
    )


def _group_advantages(**options: str) -> Equation:
    return Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, **({"scale": "std"} | options))))


def _clipped(lower: float, upper: float, **options: float | None) -> Callable[..., Any]:
    return partial(clipped_policy_loss, clip_lower=lower, clip_upper=upper, **options)


def negative_log_likelihood(log_probs: Tensor) -> TokenLoss:
    """Cross-entropy of each token: loss = -log_probs, (N,) in nats."""
    return TokenLoss(-log_probs)


def _no_advantages(row: Tensor) -> Tensor:
    return torch.zeros(len(row))


def supervised() -> Algorithm:
    """Mean cross-entropy over the tokens of the responses; rewards are not looked at."""
    return Algorithm(
        name="supervised",
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(_no_advantages)),),
        weighting=ColumnFunction(token_mean),
        terms=(LossTerm("likelihood", ColumnFunction(negative_log_likelihood)),),
    )
