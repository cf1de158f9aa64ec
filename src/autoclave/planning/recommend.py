"""Recommendation of a schedule and a split of devices, from rates that a short calibration measured.

    rates    = Rates(token_ms=..., batch_slope=..., ...)             token times from `fit_token_time`
    profile  = measured_profile(rates, Observed(tokens, reward_s), devices=8, groups=32, minibatches=4)
    advice   = recommend(profile, every_split(8))                    or the one split that the pools of the run have
    print(describe(advice))

Nothing here measures; `autoclave plan` and tests hand in what was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autoclave.core import ConfigError
from autoclave.core.timeline import Role
from autoclave.planning.collected import Assignment
from autoclave.planning.measured import Profile
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
        assignment: which sampler device gets which request.
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


CLOSE_SHARE = 0.02
"""Candidates that take at most so much longer than the fastest count as equally fast."""


@dataclass(frozen=True, slots=True)
class Advice:
    """All candidates, the fastest first, and the one to take."""

    candidates: Sequence[Candidate]
    chosen: Candidate


def recommend(
    profile: Profile,
    splits: Iterable[Split],
    *,
    staleness: Sequence[int] = STALENESS,
    overlap_slowdown: float = 1.0,
    assignment: Assignment = Assignment.ROUND_ROBIN,
) -> Advice:
    """Simulate every schedule on every split; arguments as of `simulate_each`.

    Raises:
        ConfigError: there is no split.
    """
    return advise(
        simulate_each(profile, splits, staleness=staleness, overlap_slowdown=overlap_slowdown, assignment=assignment)
    )


def advise(candidates: Iterable[Candidate]) -> Advice:
    """Recommend one of them.

    Chosen is, of those within `CLOSE_SHARE` of the least seconds per steady iteration, the one whose samples are
    nearest to the policy that learns from them, and of these the fastest.

    Raises:
        ConfigError: there is none.
    """
    found = sorted(candidates, key=lambda candidate: candidate.run.steady_s)
    if not found:
        raise ConfigError("splits: there is none; give at least one")
    close = [each for each in found if each.run.steady_s <= found[0].run.steady_s * (1 + CLOSE_SHARE)]
    order = list(ScheduleName)
    chosen = min(close, key=lambda each: (each.max_staleness, order.index(each.schedule), each.run.steady_s))
    return Advice(found, chosen)


def describe(advice: Advice, rows: int = 12) -> str:
    """The first `rows` candidates as a table, the one to take marked."""
    return "\n".join(_lines(advice, rows))


def _lines(advice: Advice, rows: int) -> Iterator[str]:
    columns = ("s / iteration", "sampler", "judge", "trainer", "rewards hid", "training hid")
    yield f"{'':<32}" + "".join(f"{column:>15}" for column in columns)
    shown = [*advice.candidates[:rows], *(each for each in advice.candidates[rows:] if each is advice.chosen)]
    for candidate in shown:
        run = candidate.run
        shares = (
            run.sampler_device_share(),
            run.busy_share(Role.JUDGE),
            run.busy_share(Role.TRAINER),
            run.hidden_reward_share(),
            run.hidden_training_share(),
        )
        mark = "->" if candidate is advice.chosen else ""
        yield f"{mark:<3}{candidate.name:<29}{run.steady_s:>15.4g}" + "".join(f"{share:>15.0%}" for share in shares)
    if len(shown) < len(advice.candidates):
        yield f"   and {len(advice.candidates) - len(shown)} slower ones"
