"""Coefficients that change from step to step: pure functions from a state and the metrics of a step to the next state.

A state is a tuple of plain numbers, the coefficient first, so that checkpoints hold it as JSON. An algorithm names its
controllers; training keeps their states, and puts each coefficient into the batch as a column (`Controller.gives`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

State = tuple[float, ...]
Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Controller:
    """A coefficient and how it follows the metrics; `advance` may be a `functools.partial` with its options bound."""

    gives: StrEnum
    """The column (N,) that holds the coefficient."""
    start: State
    """The state before the first step."""
    advance: Callable[[State, Metrics], State]


def fixed(state: State, metrics: Metrics) -> State:
    """The state as it is: a coefficient that never changes."""
    return state


def adapted_kl_coefficient(state: State, metrics: Metrics, *, target: float, gain: float) -> State:
    """The weight of a KL penalty that keeps the KL near a target.

        c' = c (1 + gain * clip(KL / target - 1, -0.2, 0.2))

    Args:
        state: (c,), cost of a nat in units of reward.
        metrics: `reward_kl_per_response`, in nats; without it (nothing was trained) the state stays.
        target: in nats per response, above 0.
        gain: relative change per step for an error of 1.

    Source: Ziegler et al., arXiv:1909.08593, section 2.2 (gain 0.1; the target 6 is that of its code).
    """
    if "reward_kl_per_response" not in metrics:
        return state
    error = min(max(metrics["reward_kl_per_response"] / target - 1, -0.2), 0.2)
    return (state[0] * (1 + gain * error),)


def entropy_until_saturation(state: State, metrics: Metrics, *, steps: int, tolerance: float) -> State:
    """The weight of an entropy bonus that is dropped for good once exploration saturates.

    It is saturated once the mean entropy of the last `steps` steps differs from that of the `steps` before by at most
    `tolerance` of the latter: the entropy has settled, and the bonus has nothing left to do.

    Args:
        state: (c, the entropies of the last steps, at most 2 `steps` of them).
        metrics: `entropy`, in nats per token; without it (nothing was trained) the state stays.
        steps: length of each of the two windows.
        tolerance: relative difference.

    Returns:
        The next state; (0,) from saturation on.

    Source: Berkeley EECS-2025-123, chapter 1 ("removal of entropy bonuses once exploration saturates"); the rule is
    ours.
    """
    coefficient, *seen = state
    if coefficient == 0 or "entropy" not in metrics:
        return state
    seen = [*seen, metrics["entropy"]][-2 * steps :]
    if len(seen) == 2 * steps:
        before, now = fmean(seen[:steps]), fmean(seen[steps:])
        if abs(now - before) <= tolerance * before:
            return (0.0,)
    return (coefficient, *seen)
