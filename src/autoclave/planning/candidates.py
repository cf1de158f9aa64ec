"""Schedules on splits of devices, simulated side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoclave.planning.collected import Assignment
from autoclave.planning.profile import Profile
from autoclave.planning.schedule_run import ScheduleRun
from autoclave.planning.simulation import ScheduleName, Split, simulate

STEADY_ITERATIONS = 6

STALENESS = (1, 2, 4)
"""Bounds of `asynchronous` to try."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to run, and what it would come to."""

    schedule: ScheduleName
    split: Split
    max_staleness: int
    """By how many updates the weights that sample may be behind those that learn."""
    run: ScheduleRun

    @property
    def name(self) -> str:
        """Such as `one_off_pipeline 3:5`, or `asynchronous(2) 3:5`."""
        bound = f"({self.max_staleness})" if self.schedule is ScheduleName.ASYNCHRONOUS else ""
        return f"{self.schedule}{bound} {self.split}"


def every_split(devices: int) -> list[Split]:
    """Taking turns on all devices, and each way to divide them."""
    return [Split.time_sharing(devices), *(Split(samplers, devices - samplers) for samplers in range(1, devices))]


def simulate_each(
    profile: Profile,
    splits: Iterable[Split],
    *,
    staleness: Sequence[int] = STALENESS,
    overlap_slowdown: float = 1.0,
    assignment: Assignment = Assignment.ROUND_ROBIN,
    schedules: Collection[ScheduleName] = tuple(ScheduleName),
) -> list[Candidate]:
    """Every schedule on every split that it can run on, for at least `STEADY_ITERATIONS` that are steady.

    Args:
        profile: the work.
        splits: the splits.
        staleness: bounds of `asynchronous` to try; `synchronous` is that of 0.
        overlap_slowdown: how many times as long everything takes while sampler and trainer work at the same time, as
            they do on a machine whose cores they share; 1 where each has devices of its own.
        dealing: which sampler device gets which request.
        schedules: those to try.
    """
    slower = profile if overlap_slowdown == 1 else profile.slowed(overlap_slowdown)
    found: list[Candidate] = []
    for split in splits:
        for schedule, bound in _schedules(split, staleness):
            if schedule not in schedules:
                continue
            work = profile if schedule is ScheduleName.SYNCHRONOUS else slower
            at_ends = 2 * bound if schedule is ScheduleName.ASYNCHRONOUS else 0
            run = simulate(
                work.of_at_least(STEADY_ITERATIONS + at_ends),
                schedule,
                split,
                max_staleness=bound,
                assignment=assignment,
            )
            found.append(Candidate(schedule, split, bound, run))
    return found


def _schedules(split: Split, staleness: Sequence[int]) -> Iterator[tuple[ScheduleName, int]]:
    yield ScheduleName.SYNCHRONOUS, 0
    if not split.is_shared:
        yield ScheduleName.MINIBATCH_PIPELINE, 0
        yield ScheduleName.ONE_OFF_PIPELINE, 1
        yield from ((ScheduleName.ASYNCHRONOUS, bound) for bound in staleness if bound)


def ideal(profile: Profile, assignment: Assignment = Assignment.ROUND_ROBIN) -> Mapping[ScheduleName, Candidate]:
    """The fastest split of each schedule but the asynchronous one, on the profile's devices; whole runs compared.

    The synchronous one takes turns on all devices and starts rewards after sampling, as the baselines of the paper do.
    """
    shared = Split.time_sharing(profile.devices)
    baseline = simulate(profile, ScheduleName.SYNCHRONOUS, shared, assignment=assignment, rewards_after_sampling=True)
    best = {ScheduleName.SYNCHRONOUS: Candidate(ScheduleName.SYNCHRONOUS, shared, 0, baseline)}
    for candidate in simulate_each(profile, every_split(profile.devices)[1:], staleness=(), assignment=assignment):
        schedule = candidate.schedule
        if schedule is ScheduleName.SYNCHRONOUS:
            continue
        if schedule not in best or candidate.run.whole_s < best[schedule].run.whole_s:
            best[schedule] = candidate
    return best
