"""Context lengthening: which limit of new tokens a batch is begun with, and when the next stage begins.

A pure state machine, and around it what a run keeps of it with its checkpoints. It goes on once per iteration, at the
barrier; batches that were begun before keep their stage, however long they are in the making. Source: the rLLM thesis
(introduction, 16k -> 32k -> 64k, "advancing only when reward variance plateaus"; section 4, iterative context
lengthening with overlong filtering) and the DeepCoder report. Neither says how a plateau is found: `has_plateau` is
ours.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, pvariance

from autoclave.config import AdvanceAtPlateauConfig, AdvanceConfig, LengthScheduleConfig
from autoclave.core import CheckpointError, Group
from autoclave.core.files import checkpoint_data, write_atomically
from autoclave.core.json import from_plain

FILE = "length_schedule.json"


@dataclass(frozen=True, slots=True)
class Rewards:
    """Those of an iteration: their mean, and their variance, in squared units of reward."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class StageState:
    """State of a run in its stages."""

    starts: tuple[int, ...] = (0,)
    """The first iteration of each stage that has begun."""
    num_begun: int = 0
    """Iterations whose batch was begun."""
    seen: tuple[Rewards, ...] = ()
    """Of the last iterations of this stage."""
    num_flat: int = 0
    """Iterations in a row, until now, at which there was a plateau."""

    @property
    def stage(self) -> int:
        """That of the batch that is begun next, from 0."""
        return len(self.starts) - 1

    def stage_of(self, iteration: int) -> int:
        """That of the batch of an iteration, which was begun or is begun next."""
        return bisect_right(self.starts, iteration) - 1


def begun(state: StageState, iteration: int) -> StageState:
    """The state once the batch of `iteration` is begun."""
    return replace(state, num_begun=max(state.num_begun, iteration + 1))


def advanced(
    state: StageState, advance: AdvanceConfig, *, num_stages: int, done: int, rewards: Rewards | None
) -> StageState:
    """The state after an iteration: the same stage or the next one.

    Args:
        state: that before.
        advance: when a stage ends.
        num_stages: how many there are; the last does not end.
        done: iterations that are done.
        rewards: what the iteration earned; None if its batch was of another stage, or nothing has a verdict.
    """
    if state.stage == num_stages - 1:
        return state
    if isinstance(advance, AdvanceAtPlateauConfig):
        state = _with_rewards(state, advance, rewards) if rewards else state
        ends = state.num_flat >= advance.patience
    else:
        ends = done >= advance.steps[state.stage]
    return replace(state, starts=(*state.starts, state.num_begun), seen=(), num_flat=0) if ends else state


def has_plateau(seen: Sequence[Rewards], window: int, tolerance: float) -> bool:
    """Return whether the last `window` of `seen` are, beside as many before them, neither more or less varied nor
    higher.

        |v - u| <= tolerance * max(u, v)   and   r - q <= tolerance * |q|

    u and v are the mean variance of the window before and of the last one, q and r their mean reward. The variance
    alone would not do: that of rewards of 0 and 1 hardly moves while their mean passes 1/2.
    """
    if len(seen) < 2 * window:
        return False
    before, last = seen[-2 * window : -window], seen[-window:]
    u, v = (fmean(each.variance for each in part) for part in (before, last))
    q, r = (fmean(each.mean for each in part) for part in (before, last))
    return abs(v - u) <= tolerance * max(u, v) and r - q <= tolerance * abs(q)


def _with_rewards(state: StageState, advance: AdvanceAtPlateauConfig, rewards: Rewards) -> StageState:
    seen = (*state.seen, rewards)[-2 * advance.window :]
    is_flat = has_plateau(seen, advance.window, advance.tolerance)
    return replace(state, seen=seen, num_flat=state.num_flat + 1 if is_flat else 0)


class LengthSchedule:
    """The stages of a run, and which it is in; a run without a length schedule has one."""

    def __init__(self, limit: int, length_schedule: LengthScheduleConfig | None = None) -> None:
        """With `limit` new tokens all along, or as `length_schedule` says."""
        self.limits = length_schedule.limits if length_schedule else (limit,)
        self._advance = length_schedule.advance if length_schedule else AdvanceAtPlateauConfig()
        self.restart()

    def restart(self) -> None:
        """Go back to the first stage."""
        self.state = StageState()

    def begin(self, iteration: int) -> int:
        """Most new tokens of a response in the batch of `iteration`, which is begun now, or once more."""
        self.state = begun(self.state, iteration)
        return self.limits[self.state.stage_of(iteration)]

    def advance(self, done: int, groups: Sequence[Group]) -> int | None:
        """Go on after `done` iterations, of which the last learnt from `groups`.

        Returns:
            The limit of the batches that are begun from now on if it is another one, else None.
        """
        before = self.state.stage
        rewards = _rewards(groups, self.limits[before])
        self.state = advanced(self.state, self._advance, num_stages=len(self.limits), done=done, rewards=rewards)
        return None if self.state.stage == before else self.limits[self.state.stage]

    def metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """Stage, from 1, and limit of `groups`, means where they are of several.

        Nothing if there is one stage, or no rollout.
        """
        if len(self.limits) == 1:
            return {}
        found = [rollout.length_limit for group in groups for rollout in group.rollouts]
        if not found:
            return {}
        return {
            "length_schedule/stage": fmean(self.limits.index(limit) + 1 for limit in found),
            "length_schedule/max_new_tokens": fmean(found),
        }

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, json.dumps(asdict(self.state)) + "\n")

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. Raises CheckpointError: it is missing or damaged."""
        with checkpoint_data(folder / FILE) as found:
            self.state = from_plain(StageState, {name: found[name] for name in asdict(self.state)}, "state")
        if not 0 < len(self.state.starts) <= len(self.limits):
            raise CheckpointError(f"{folder / FILE}: damaged ({len(self.state.starts)} stages)")


def _rewards(groups: Sequence[Group], limit: int) -> Rewards | None:
    """Rewards of `groups`; None if one of them had another limit, or none has a verdict."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    values = [rollout.reward.value for rollout in rollouts if rollout.reward.value is not None]
    if not values or any(rollout.length_limit != limit for rollout in rollouts):
        return None
    return Rewards(fmean(values), pvariance(values))
