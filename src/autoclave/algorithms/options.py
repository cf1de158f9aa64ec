"""Options that several algorithms share: from settings to filters, a correction, and terms that 0 leaves out."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from autoclave.algorithms.algorithm import RolloutFilter
from autoclave.algorithms.columns import Column, ColumnFunction
from autoclave.algorithms.control import Controller, fixed
from autoclave.algorithms.importance import masked_importance, truncated_importance
from autoclave.algorithms.kl import KlEstimator
from autoclave.algorithms.losses import TokenLoss, entropy_bonus, kl_penalty
from autoclave.algorithms.parts import Equation, LossTerm
from autoclave.algorithms.rewards import penalised_rewards, penalised_token_rewards, token_kl
from autoclave.config.algorithm import AlgorithmSettings, MaskedCorrectionConfig, TruncatedCorrectionConfig
from autoclave.core.rollout import MaskReason, Rollout
from autoclave.core.verdict import Status


def filters(settings: AlgorithmSettings) -> tuple[RolloutFilter, ...]:
    """Masks of rollouts; one without a verdict never trains."""
    chosen: list[RolloutFilter] = [mask_no_verdict]
    if settings.masks_overlong:
        chosen.append(mask_overlong)
    if settings.mask_turn_limit:
        chosen.append(mask_turn_limit)
    if settings.mask_format:
        chosen.append(mask_format)
    return tuple(chosen)


def correction(settings: AlgorithmSettings) -> ColumnFunction[Tensor] | None:
    """Importance sampling against the difference between sampler and trainer, or None."""
    match settings.correction:
        case TruncatedCorrectionConfig(level=level, upper=upper):
            return ColumnFunction(partial(truncated_importance, level=level, upper=upper))
        case MaskedCorrectionConfig(level=level, lower=lower, upper=upper):
            return ColumnFunction(partial(masked_importance, level=level, lower=lower, upper=upper))
        case _:
            return None


def policy_term(loss: ColumnFunction[TokenLoss]) -> LossTerm:
    """The term that learns from advantages."""
    return LossTerm("policy", loss, skip_if_zero=Column.ADVANTAGES)


def kl_term(coefficient: float, estimator: KlEstimator) -> tuple[LossTerm, ...]:
    """KL to the reference as a term of the loss; nothing at 0, so that nothing is computed for it."""
    penalty = partial(kl_penalty, coefficient=coefficient, estimator=estimator)
    return (LossTerm("kl", ColumnFunction(penalty)),) if coefficient else ()


def entropy_term(coefficient: float) -> tuple[LossTerm, ...]:
    """The entropy bonus; nothing at 0."""
    return (
        (LossTerm("entropy", ColumnFunction(partial(entropy_bonus, coefficient=coefficient))),) if coefficient else ()
    )


def kl_in_token_rewards(coefficient: float, estimator: KlEstimator) -> tuple[Equation, ...]:
    """Cost of the KL to the reference at each token, taken from TOKEN_REWARDS; nothing at 0."""
    penalised = Equation(Column.TOKEN_REWARDS, ColumnFunction(penalised_token_rewards))
    return (_kl(estimator), penalised) if coefficient else ()


def kl_in_rewards(coefficient: float, estimator: KlEstimator) -> tuple[Equation, ...]:
    """Cost of the KL of each response to the reference, taken from REWARDS; nothing at 0."""
    penalised = Equation(Column.REWARDS, ColumnFunction(penalised_rewards))
    return (_kl(estimator), penalised) if coefficient else ()


def fixed_kl(coefficient: float) -> tuple[Controller, ...]:
    """The cost of a nat of KL in rewards, which stays as it is; nothing at 0."""
    return (Controller(Column.KL_COEFFICIENT, (coefficient,), fixed),) if coefficient else ()


def _kl(estimator: KlEstimator) -> Equation:
    return Equation(Column.KL, ColumnFunction(partial(token_kl, estimator=estimator)))


def mask_no_verdict(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those without a reward are masked, for a fault of the judge is no evidence."""
    return tuple(
        rollout if rollout.reward.value is not None else rollout.masked(MaskReason.NO_VERDICT) for rollout in rollouts
    )


def mask_overlong(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those cut by the length limit are masked, whatever their reward.

    Source: Yu et al., DAPO, arXiv:2503.14476, section 3.4 (overlong filtering); the DeepCoder report (GRPO+).
    """
    return tuple(rollout.masked(MaskReason.OVERLONG) if rollout.is_cut else rollout for rollout in rollouts)


def mask_turn_limit(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; episodes that the limit of turns ended are masked, whatever their reward."""
    return tuple(rollout.masked(MaskReason.TURNS) if rollout.ended_by == "turns" else rollout for rollout in rollouts)


def mask_format(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those without a program in the response are masked, instead of a reward of 0.

    Format is then neither taught nor punished; without this a wrong one counts as a failure (the DeepCoder report).
    """
    return tuple(
        rollout.masked(MaskReason.FORMAT)
        if rollout.reward.verdict is not None and rollout.reward.verdict.status is Status.BAD_FORMAT
        else rollout
        for rollout in rollouts
    )
