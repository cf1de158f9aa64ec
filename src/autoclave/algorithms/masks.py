"""Masks: rollouts that do not train, each with its reason. Pure functions from rollouts to rollouts, in the same order.

A masked rollout does not train, nor does it count in the baseline of its group unless the algorithm asks for it. The
first reason given to a rollout stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoclave.core.rollout import FinishReason, MaskReason, Rollout
from autoclave.core.verdict import Status


def mask_no_verdict(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those without a reward are masked, for a fault of the judge is no evidence."""
    return tuple(
        rollout if rollout.reward.value is not None else rollout.masked(MaskReason.NO_VERDICT) for rollout in rollouts
    )


def mask_overlong(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those cut by the length limit are masked, whatever they earned: neither good nor bad.

    Source: Yu et al., DAPO, arXiv:2503.14476, section 3.4 (overlong filtering); the DeepCoder report (GRPO+).
    """
    return tuple(
        rollout.masked(MaskReason.OVERLONG) if rollout.completion.finish_reason is FinishReason.LENGTH else rollout
        for rollout in rollouts
    )


def mask_format(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same rollouts; those whose response holds no program are masked, instead of earning 0.

    Format is then neither taught nor punished; without this a wrong one counts as a failure (the DeepCoder report).
    """
    return tuple(
        rollout.masked(MaskReason.FORMAT)
        if rollout.reward.verdict is not None and rollout.reward.verdict.status is Status.BAD_FORMAT
        else rollout
        for rollout in rollouts
    )
