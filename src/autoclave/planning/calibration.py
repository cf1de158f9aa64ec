"""Rates from the timeline of a run: token times by requests running, rewards, learning, publishes, lengths.

    calibration = calibrate(read_steps(run, steps), Place(devices..., ...))
    profile     = calibration.profile(minibatches=4)

Pure arithmetic on spans; nothing here runs anything.

    token time   see `token_times.py`
    reward       its span, less the time for which all slots of the judge were taken by rewards asked for before
    learning     seconds of updates over response tokens, times the trainer's devices
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from statistics import fmean

import numpy as np

from autoclave.core import InputError
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.planning.measured import Observed, Rates, measured_profile
from autoclave.planning.profile import Profile
from autoclave.planning.simulation import Split
from autoclave.planning.token_times import SamplingTimes, num_tokens, sampling_times


@dataclass(frozen=True, slots=True)
class Place:
    """Setting in which a run was timed."""

    split: Split
    slots: int
    """Requests that a sampler device runs at once."""
    judge_slots: int
    group_size: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements of a calibration."""

    place: Place
    sampling: SamplingTimes
    rates: Rates
    observed: Observed
    """A request has as many tokens more as its start takes."""
    groups: int
    """Of an iteration, on average."""
    iteration_s: float
    """Seconds of an iteration of the run that was timed, on average."""

    def profile(self, minibatches: int) -> Profile:
        """The work of iterations like those seen."""
        devices = self.place.split.samplers + (0 if self.place.split.is_shared else self.place.split.trainers)
        return measured_profile(
            self.rates, self.observed, devices=devices, groups=self.groups, minibatches=min(minibatches, self.groups)
        )


def calibrate(timelines: Iterable[StepTimeline], place: Place) -> Calibration:
    """Rates from the steps of a run. The first one is left out where there are others: libraries warm up in it.

    Raises:
        InputError: no step has requests of whole groups and an update.
    """
    steps = [timeline for timeline in timelines if timeline.step]
    all_steps = [by_role(timeline) for timeline in steps]
    found = all_steps[1:] or all_steps
    judged = sorted((span for spans in all_steps for span in spans[Role.JUDGE]), key=lambda span: span.start)
    rewards: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for span, seconds in zip(judged, reward_seconds(judged, place.judge_slots), strict=True):
        rewards[span.step, span.name].append(seconds)
    groups = [group for spans in found for group in whole_groups(spans[Role.SAMPLER], rewards, place.group_size)]
    if not groups or not any(spans[Role.TRAINER] for spans in found):
        raise InputError(
            "calibration: no step has requests of whole groups and an update; run more iterations of the recipe first"
        )
    warm_up = [span for spans in all_steps[: len(all_steps) - len(found)] for span in spans[Role.SAMPLER]]
    sampling = sampling_times([span for spans in found for span in spans[Role.SAMPLER]], warm_up)
    start = round(sampling.start_tokens)
    return Calibration(
        place=place,
        sampling=sampling,
        rates=Rates(
            token_ms=sampling.token.token_ms,
            batch_slope=sampling.token.batch_slope,
            slots=place.slots,
            judge_slots=place.judge_slots,
            train_ms_per_token=train_ms(found, place.split.trainers, start),
            sync_s=fmean([_seconds(span) for spans in found for span in spans[Role.PUBLISH]] or [0.0]),
        ),
        observed=Observed(
            np.array([[num_tokens(request) + start for request, _ in group] for group in groups], dtype=np.int64),
            np.array([[reward for _, reward in group] for group in groups]),
        ),
        groups=max(1, round(len(groups) / len(found))),
        iteration_s=fmean(timeline.end - timeline.start for timeline in steps[1:] or steps),
    )


def by_role(timeline: StepTimeline) -> dict[Role, list[Span]]:
    """The spans that belong to a step, by their start."""
    found: dict[Role, list[Span]] = {role: [] for role in Role}
    for span in sorted(timeline.spans, key=lambda span: span.start):
        if span.step == timeline.step:
            found[span.role].append(span)
    return found


def whole_groups(
    requests: Sequence[Span], rewards: Mapping[tuple[int, str], Sequence[float]], size: int
) -> list[list[tuple[Span, float]]]:
    """Each group of requests of a step, with the seconds of their rewards. What is over is left out.

    Of an item that was asked again there are several groups, one after the other.

    Args:
        requests: those of a step, by their start.
        rewards: seconds of rewards by step and name, in their order.
        size: requests of a group.
    """
    items: defaultdict[str, list[tuple[Span, float]]] = defaultdict(list)
    seen: Counter[str] = Counter()
    for span in requests:
        seconds, number = rewards.get((span.step, span.name), ()), seen[span.name]
        seen[span.name] += 1
        if number < len(seconds) and num_tokens(span):
            items[span.name.rpartition("#")[0]].append((span, seconds[number]))
    starts = ((found, start) for found in items.values() for start in range(0, len(found) - size + 1, size))
    return [found[start : start + size] for found, start in starts]


def reward_seconds(spans: Sequence[Span], slots: int) -> list[float]:
    """Seconds that each reward took on its slot; `spans` are by their start, and begin when a reward is asked for."""
    free_at = [float("-inf")] * slots
    heapify(free_at)
    taken: list[float] = []
    for span in spans:
        taken.append(max(0.0, span.end - max(span.start, free_at[0])))
        heapreplace(free_at, max(span.end, free_at[0]))
    return taken


def train_ms(steps: Sequence[Mapping[Role, Sequence[Span]]], devices: int, start: int = 0) -> float:
    """Milliseconds of one device that learning from a response token takes; a response has `start` tokens more."""
    tokens = sum(num_tokens(span) + start for spans in steps for span in spans[Role.SAMPLER])
    return 1e3 * devices * sum(_seconds(span) for spans in steps for span in spans[Role.TRAINER]) / max(1, tokens)


def _seconds(span: Span) -> float:
    return span.end - span.start
