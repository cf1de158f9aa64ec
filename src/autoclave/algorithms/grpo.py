"""GRPO, as published: group-normalised advantages, symmetric clip, mean over sequences, KL to a reference policy.

Source: Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1.
"""

from __future__ import annotations

from functools import partial

from autoclave.algorithms.advantages import group_token_advantages
from autoclave.algorithms.aggregation import sequence_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, LossTerm
from autoclave.algorithms.kl import k3
from autoclave.algorithms.losses import clipped_policy_loss, entropy_bonus, kl_penalty
from autoclave.algorithms.masks import mask_no_verdict
from autoclave.config.algorithm import GrpoConfig


def grpo(config: GrpoConfig) -> Algorithm:
    """The choices of GRPO. A term whose coefficient is 0 is not part of it, so nothing is computed for it."""
    policy = ColumnFunction(
        partial(clipped_policy_loss, clip_lower=config.clip, clip_upper=config.clip),
        reads=(Column.LOG_PROBS, Column.OLD_LOG_PROBS, Column.ADVANTAGES),
    )
    divergence = ColumnFunction(
        partial(kl_penalty, coefficient=config.kl_coefficient, estimator=k3),
        reads=(Column.LOG_PROBS, Column.REFERENCE_LOG_PROBS),
    )
    bonus = ColumnFunction(partial(entropy_bonus, coefficient=config.entropy_coefficient), reads=(Column.ENTROPY,))
    terms = [LossTerm("policy", policy, is_zero_without_advantage=True)]
    if config.kl_coefficient > 0:
        terms.append(LossTerm("kl", divergence, is_zero_without_advantage=False))
    if config.entropy_coefficient > 0:
        terms.append(LossTerm("entropy", bonus, is_zero_without_advantage=False))
    return Algorithm(
        name=config.name,
        filters=(mask_no_verdict,),
        advantage=ColumnFunction(
            partial(group_token_advantages, scale="std"),
            reads=(Column.REWARDS, Column.GROUP, Column.TRAINS, Column.ROW),
        ),
        weighting=sequence_mean,
        terms=tuple(terms),
    )
