"""GRPO+, in both readings of the thesis that names it.

`report` (chapter 4, as in the DeepCoder report): GRPO without KL and entropy terms, with a higher upper clip and
overlong filtering. `introduction` (chapter 1): relative-KL clipping, a filter of over-long responses by their variance,
and an entropy bonus that ends when exploration saturates. Both: groups normalised by deviation, a mean over tokens.

Source: Berkeley EECS-2025-123; the DeepCoder report; Yu et al., DAPO, arXiv:2503.14476, sections 3.1, 3.3 and 3.4.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, Equation, LossTerm
from autoclave.algorithms.control import Controller, entropy_until_saturation
from autoclave.algorithms.losses import clipped_policy_loss, controlled_entropy_bonus
from autoclave.algorithms.options import correction, entropy_term, filters, kl_term, policy_term
from autoclave.algorithms.trust_region import group_trust
from autoclave.algorithms.variance import without_dominant
from autoclave.config.algorithm import GrpoPlusConfig
from autoclave.core.rollout import MaskReason


def grpo_plus(config: GrpoPlusConfig) -> Algorithm:
    """The choices of GRPO+, in the reading that the settings name."""
    return {"report": _report, "introduction": _introduction}[config.reading](config)


def _report(config: GrpoPlusConfig) -> Algorithm:
    policy = partial(clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    return Algorithm(
        name=config.name,
        filters=filters(config),
        advantage=(Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std"))),),
        weighting=ColumnFunction(token_mean),
        terms=(
            policy_term(ColumnFunction(policy)),
            *kl_term(config.kl_coefficient, "k3"),
            *entropy_term(config.entropy_coefficient),
        ),
        correction=correction(config),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )


def _introduction(config: GrpoPlusConfig) -> Algorithm:
    policy = partial(clipped_policy_loss, clip_lower=config.clip_lower, clip_upper=config.clip_upper)
    of_group = Equation(Column.ADVANTAGES, ColumnFunction(partial(group_token_advantages, scale="std")))
    balanced = partial(without_dominant, limit=config.variance_share_limit)
    exploration = Controller(
        Column.ENTROPY_COEFFICIENT,
        (config.exploration_coefficient,),
        partial(entropy_until_saturation, steps=config.saturation_steps, tolerance=config.saturation_tolerance),
    )
    bonus = LossTerm("entropy", ColumnFunction(controlled_entropy_bonus), vanishes_with=Column.ENTROPY_COEFFICIENT)
    return Algorithm(
        name=config.name,
        filters=filters(config.model_copy(update={"mask_overlong": False})),
        advantage=(of_group, Equation(Column.IN_LOSS, ColumnFunction(balanced), MaskReason.LENGTH_VARIANCE), of_group),
        weighting=ColumnFunction(token_mean),
        terms=(policy_term(ColumnFunction(policy)), bonus),
        correction=correction(config),
        trust_region=ColumnFunction(partial(group_trust, limit=config.group_kl_limit)),
        controllers=(exploration,),
        include_masked_in_baseline=config.include_masked_in_baseline,
    )
