"""The plan of a run's schedule as a file, `plan.json`: what was measured, what each way to run would take, the advice.

It is written by `autoclave plan` and stands in the folder of the run that it is for, whose report compares it with what
the run took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core import DataError
from autoclave.core.files import write_atomically
from autoclave.core.json import from_plain, parse_object, shown, to_plain
from autoclave.planning.calibration import Calibration
from autoclave.planning.measured import Rates
from autoclave.planning.recommend import Advice, Candidate
from autoclave.planning.simulation import ScheduleName, Split

PLAN_FORMAT = "autoclave-plan/1"
PLAN_NAME = "plan.json"

WORK = ("problems_per_step", "group_size", "minibatches", "sampler.max_new_tokens", "model.path")
"""Settings that the seconds of an iteration depend on whatever the schedule: a plan is of a run that has the same."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A way to run, and the seconds of an iteration that it should take."""

    schedule: ScheduleName
    samplers: int
    trainers: int
    is_shared: bool
    max_staleness: int
    seconds: float

    @staticmethod
    def of(candidate: Candidate) -> Predicted:
        split = candidate.split
        return Predicted(
            candidate.schedule,
            split.samplers,
            split.trainers,
            split.is_shared,
            candidate.max_staleness,
            candidate.run.steady_s,
        )

    @property
    def name(self) -> str:
        """As that of `Candidate`."""
        bound = f"({self.max_staleness})" if self.schedule is ScheduleName.ASYNCHRONOUS else ""
        return f"{self.schedule}{bound} {Split(self.samplers, self.trainers, self.is_shared)}"


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
    candidates: list[Predicted]
    """The fastest first."""
    chosen: Predicted

    def of(self, config: Mapping[str, Any]) -> Predicted | None:
        """Seconds that a run of these settings should take; None if that was not simulated, or is other work."""
        if work_of(config) != self.work:
            return None
        schedule = ScheduleName(config["schedule"]["name"])
        staleness = config["schedule"].get("max_staleness")
        split = split_of(config)
        for each in self.candidates:
            same = (each.schedule, each.samplers, each.trainers, each.is_shared) == (
                schedule,
                split.samplers,
                split.trainers,
                split.is_shared,
            )
            if same and (staleness is None or each.max_staleness == staleness):
                return each
        return None


def make_plan(config: Mapping[str, Any], found: Calibration, slowdown: float, advice: Advice) -> SchedulePlan:
    return SchedulePlan(
        format=PLAN_FORMAT,
        work=work_of(config),
        rates=found.rates,
        tokens_per_s=sorted(found.sampling.tokens_per_s.items()),
        start_tokens=found.sampling.start_tokens,
        overlap_slowdown=slowdown,
        calibrated_s=found.iteration_s,
        candidates=[Predicted.of(candidate) for candidate in advice.candidates],
        chosen=Predicted.of(advice.chosen),
    )


def write_plan(plan: SchedulePlan, folder: Path) -> Path:
    """Write the plan into the folder of a run, which may not be there yet; its path.

    Raises:
        InputError: it cannot be written there.
        HostError: the disk is full or fails.
    """
    path = folder / PLAN_NAME
    write_atomically(path, json.dumps(to_plain(plan), indent=2) + "\n")
    return path


def read_plan(folder: Path) -> SchedulePlan | None:
    """The plan in the folder of a run, if there is one.

    Raises:
        DataError: it is damaged, or of another format.
    """
    path = folder / PLAN_NAME
    if not path.is_file():
        return None
    found = parse_object(path.read_text(encoding="utf-8"), str(path))
    if found.get("format") != PLAN_FORMAT:
        raise DataError(f'{path}: format = {shown(found.get("format"))}: must be "{PLAN_FORMAT}"')
    return from_plain(SchedulePlan, found, str(path))


def split_of(config: Mapping[str, Any]) -> Split:
    """The processes that sample and learn, by the settings of a run."""
    home, learner = (config["workers"][name] for name in ("sampler", "actor"))
    samplers, trainers = (config["pools"][pool]["processes"] for pool in (home, learner))
    return Split(samplers, trainers, is_shared=home == learner)


def work_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `WORK`, by their names."""
    return {name: _setting(config, name.split(".")) for name in WORK}


def _setting(config: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = config
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
