"""Sources of a view: steps of runs. Wrong folders and steps are found here, before rollouts are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from autoclave.core.errors import InputError
from autoclave.runs.reader import Run, read_run
from autoclave.runs.rollouts import step_of

SHOWN_ROLLOUTS = 200


@dataclass(frozen=True, slots=True)
class Request:
    """Request for the run in folder `run`.

    With `against` or `against_step` it is compared with that run (itself by default) and step (the same by default).
    """

    run: Path
    against: Path | None = None
    against_step: int | None = None
    steps: Sequence[int] = ()
    """The first and the last by default; all with `problems`; when comparing, the last that both runs have."""
    problems: Sequence[str] = ()
    """Only rollouts of these."""
    limit: int = SHOWN_ROLLOUTS
    """Most rollouts on the page."""

    @property
    def compares(self) -> bool:
        return self.against is not None or self.against_step is not None


@dataclass(frozen=True, slots=True)
class Source:
    """The rollouts of one step of one run."""

    run: Run
    step: int
    path: Path
    label: str


def sources_of(request: Request) -> list[Source]:
    """The steps to look at, in order; when comparing two: first what is compared with, then the run.

    Raises:
        InputError: not a run folder, no rollouts recorded, a step that is not, or nothing to compare with.
    """
    run = _with_rollouts(request.run)
    if not request.compares:
        steps = request.steps or _default_steps(run, bool(request.problems))
        return [_source(run, step, "--step", f"step {step}") for step in sorted(set(steps))]
    if len(request.steps) > 1:
        raise InputError(f"--step {request.steps[1]}: a comparison takes one step of a run; give --step once")
    other = _with_rollouts(request.against) if request.against else run
    step = request.steps[0] if request.steps else None
    if step is None:
        step = max(_files(run)) if request.against_step is not None else _last_common_step(run, other)
    against_step = step if request.against_step is None else request.against_step
    if other.folder.resolve() == run.folder.resolve():
        if against_step == step:
            raise InputError(f"--against-step: step {step} of {run.folder} would be compared with itself; give another")
        names = ["", ""]
    else:
        names = [f"{other.folder}, ", f"{run.folder}, "]
    return [
        _source(other, against_step, "--against-step", f"{names[0]}step {against_step}"),
        _source(run, step, "--step", f"{names[1]}step {step}"),
    ]


def _with_rollouts(folder: Path) -> Run:
    run = read_run(folder)
    if not run.rollout_files:
        raise InputError(f"{folder}: no rollouts recorded; they are written after the first step of `autoclave train`")
    return run


def _files(run: Run) -> dict[int, Path]:
    return {step_of(path): path for path in run.rollout_files}


def _default_steps(run: Run, is_all: bool) -> list[int]:
    steps = list(_files(run))
    return steps if is_all else [steps[0], steps[-1]]


def _last_common_step(run: Run, other: Run) -> int:
    common = _files(run).keys() & _files(other).keys()
    if not common:
        raise InputError(f"{run.folder} and {other.folder} have no step in common; give --step and --against-step")
    return max(common)


def _source(run: Run, step: int, option: str, label: str) -> Source:
    files = _files(run)
    if step not in files:
        raise InputError(f"{option} {step}: {run.folder} has no rollouts of it; recorded are {ranges(list(files))}")
    return Source(run, step, files[step], label)


def ranges(steps: Sequence[int]) -> str:
    """Ascending numbers in few words: `1 to 5, 7, 9 to 10`."""
    starts = [steps[0], *(after for before, after in pairwise(steps) if after != before + 1)]
    stops = [*(before for before, after in pairwise(steps) if after != before + 1), steps[-1]]
    pairs = zip(starts, stops, strict=True)
    return ", ".join(str(start) if start == stop else f"{start} to {stop}" for start, stop in pairs)
