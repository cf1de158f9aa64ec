"""Seconds of an iteration under every schedule and split, the recommendation, and its file, `plan.json`.

`autoclave plan` writes the file into the folder of the run that it is for, whose report compares it with what the run
took. Nothing here measures; see `calibration`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import DataError
from autoclave.core.files import write_atomically
from autoclave.core.json import from_plain, parse_object, shown, to_plain
from autoclave.core.timeline import Role
from autoclave.planning.calibration import Rates
from autoclave.planning.profile import Profile
from autoclave.planning.simulation import ScheduleName, Split, simulate

PLAN_FORMAT = "autoclave-plan/2"
PLAN_NAME = "plan.json"

WORK = ("problems_per_step", "group_size", "minibatches", "sampler.max_new_tokens", "model.path")
"""Settings that the seconds of an iteration depend on whatever the schedule: a plan is of a run that has the same."""
STEADY_ITERATIONS = 6
STALENESS = (1, 2, 4)
"""Bounds of `asynchronous` to try."""
CLOSE_SHARE = 0.02
"""Candidates that take at most so much longer than the fastest count as equally fast."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule on a split, and what a steady iteration comes to."""

    schedule: ScheduleName
    split: Split
    max_staleness: int
    """By how many updates the weights that sample may be behind those that learn."""
    seconds: float
    shares: dict[str, float]
    """Of the time: sampler devices, judge and trainer busy; rewards and training hidden behind other work."""

    @property
    def name(self) -> str:
        """Such as `one_off_pipeline 3:5`, or `asynchronous(2) 3:5`."""
        bound = f"({self.max_staleness})" if self.schedule is ScheduleName.ASYNCHRONOUS else ""
        return f"{self.schedule}{bound} {self.split}"


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """All that the file holds."""

    format: str
    work: dict[str, Any]
    """The settings of `WORK`."""
    rates: Rates
    tokens_per_s: list[tuple[float, float]]
    """Requests that ran on a device, and its tokens per second."""
    start_tokens: float
    """The start of a request, in tokens."""
    overlap_slowdown: float
    calibrated_s: float
    """Seconds of an iteration of the run that was timed."""
    candidates: list[Candidate]
    """The fastest first."""
    chosen: Candidate

    def of(self, config: Mapping[str, Any]) -> Candidate | None:
        """The candidate that a run of these settings is; None if it was not simulated, or is other work."""
        if work_of(config) != self.work:
            return None
        schedule, split = ScheduleName(config["schedule"]["name"]), split_of(config)
        staleness = config["schedule"].get("max_staleness")
        same = (each for each in self.candidates if (each.schedule, each.split) == (schedule, split))
        return next((each for each in same if staleness in (None, each.max_staleness)), None)


def every_split(devices: int) -> list[Split]:
    """Taking turns on all devices, and each way to divide them."""
    return [Split.time_sharing(devices), *(Split(samplers, devices - samplers) for samplers in range(1, devices))]


def simulate_each(
    profile: Profile,
    schedule: ScheduleName,
    splits: Iterable[Split],
    *,
    staleness: Sequence[int] = STALENESS,
    overlap_slowdown: float = 1.0,
) -> list[Candidate]:
    """A schedule on every split that it can run on, for at least `STEADY_ITERATIONS` that are steady.

    Args:
        staleness: bounds of `asynchronous` to try.
        overlap_slowdown: how many times as long everything takes while sampler and trainer work at the same time, as
            they do on a machine whose cores they share; 1 where each has devices of its own.
    """
    is_serial = schedule is ScheduleName.SYNCHRONOUS
    work = profile if is_serial or overlap_slowdown == 1 else profile.slowed(overlap_slowdown)
    fixed = {ScheduleName.SYNCHRONOUS: 0, ScheduleName.MINIBATCH_PIPELINE: 0, ScheduleName.ONE_OFF_PIPELINE: 1}
    bounds = [fixed[schedule]] if schedule in fixed else [bound for bound in staleness if bound]
    found: list[Candidate] = []
    for split in splits:
        for bound in [] if split.is_shared and not is_serial else bounds:
            at_ends = 0 if schedule in fixed else 2 * bound
            iterations = work.of_at_least(STEADY_ITERATIONS + at_ends)
            run = simulate(iterations, schedule, split, max_staleness=bound, keeps_groups=True)
            shares = {
                "sampler": run.sampler_device_share(),
                "judge": run.busy_share(Role.JUDGE),
                "trainer": run.busy_share(Role.TRAINER),
                "rewards hid": run.hidden_reward_share(),
                "training hid": run.hidden_training_share(),
            }
            found.append(Candidate(schedule, split, bound, run.steady_s, shares))
    return found


def recommend(candidates: Sequence[Candidate]) -> Candidate:
    """Of candidates within `CLOSE_SHARE` of the fastest, the one whose samples are nearest to the policy that learns
    from them, and of these the fastest.
    """
    least = min(candidate.seconds for candidate in candidates)
    close = [each for each in candidates if each.seconds <= least * (1 + CLOSE_SHARE)]
    order = list(ScheduleName)
    return min(close, key=lambda each: (each.max_staleness, order.index(each.schedule), each.seconds))


def candidate_lines(plan: SchedulePlan, rows: int = 12) -> Iterator[str]:
    """The fastest `rows` candidates as a table, the recommended one marked."""
    columns = ("s / iteration", *plan.chosen.shares)
    yield f"{'':<32}" + "".join(f"{column:>15}" for column in columns)
    shown = plan.candidates[:rows] + [each for each in plan.candidates[rows:] if each == plan.chosen]
    for each in shown:
        mark = "->" if each == plan.chosen else ""
        shares = "".join(f"{share:>15.0%}" for share in each.shares.values())
        yield f"{mark:<3}{each.name:<29}{each.seconds:>15.4g}{shares}"
    if len(shown) < len(plan.candidates):
        yield f"   and {len(plan.candidates) - len(shown)} slower ones"


def split_of(config: Mapping[str, Any]) -> Split:
    """The processes that sample and learn, by the settings of a run."""
    home, learner = (config["workers"][name] for name in ("sampler", "actor"))
    samplers, trainers = (config["pools"][pool]["processes"] for pool in (home, learner))
    return Split(samplers, trainers, is_shared=home == learner)


def work_of(config: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in WORK:
        value: Any = config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        found[name] = value
    return found


def write_plan(plan: SchedulePlan, folder: Path) -> Path:
    """Write the plan into the folder of a run, which may not be there yet; its path.

    Raises InputError: it cannot be written there. HostError: the disk is full or fails.
    """
    path = folder / PLAN_NAME
    write_atomically(path, json.dumps(to_plain(plan), indent=2) + "\n")
    return path


def read_plan(folder: Path) -> SchedulePlan | None:
    """The plan in the folder of a run, if there is one. Raises DataError: it is damaged, or of another format."""
    path = folder / PLAN_NAME
    if not path.is_file():
        return None
    found = parse_object(path.read_text(encoding="utf-8"), str(path))
    if found.get("format") != PLAN_FORMAT:
        raise DataError(f'{path}: format = {shown(found.get("format"))}: must be "{PLAN_FORMAT}"')
    return from_plain(SchedulePlan, found, str(path))
