"""The steps that a view is of, and one pass over the rollouts of each: figures of all, and an outline to choose from.

Wrong folders and steps are found before rollouts are read. In memory are one rollout at a time and, of each, whether it
was accepted.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from autoclave.core.errors import InputError
from autoclave.runs.reader import Run, read_run
from autoclave.runs.rollouts import NO_TASK, RecordedRollout, read_rollouts, step_of, varied

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

    Raises InputError: not a run folder, no rollouts recorded, a step that is not, or nothing to compare with.
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


@dataclass(slots=True)
class Mean:
    """Of numbers as they come; None of none."""

    total: float = 0.0
    count: int = 0

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None

    def add(self, *values: float | None) -> None:
        found = [value for value in values if value is not None]
        self.total += sum(found)
        self.count += len(found)


@dataclass(slots=True)
class Figures:
    """Of a set of rollouts. A mean is None where nothing was recorded."""

    rollouts: int = 0
    accepted: int = 0
    """By the judge, or exact."""
    statuses: Counter[str] = field(default_factory=Counter[str])
    """Of verdicts, and reasons of rewards without one."""
    masked: int = 0
    cut: int = 0
    """By the limit of new tokens."""
    reward: Mean = field(default_factory=Mean)
    length: Mean = field(default_factory=Mean)
    """Tokens of a response."""
    mismatch: Mean = field(default_factory=Mean)
    """|log-prob of the trainer - of the sampler| of a token, nats."""
    max_mismatch: float | None = None

    def add(self, rollout: RecordedRollout) -> None:
        self.rollouts += 1
        self.accepted += rollout.is_accepted
        self.statuses[rollout.status] += 1
        self.masked += rollout.mask_reason is not None
        self.cut += rollout.finish_reason == "length"
        self.reward.add(rollout.reward)
        self.length.add(rollout.tokens)
        columns = rollout.token_columns
        mismatches = np.abs(columns.mismatches[np.isfinite(columns.mismatches)]) if columns else np.zeros(0)
        if len(mismatches):
            self.mismatch.add(*mismatches.tolist())
            self.max_mismatch = max(self.max_mismatch or 0.0, float(mismatches.max()))

    @property
    def accepted_share(self) -> float | None:
        return self.accepted / self.rollouts if self.rollouts else None


@dataclass(slots=True)
class Outline:
    """The rollouts of one problem in one step: which were accepted, in the order of the file."""

    item: str
    accepted: list[bool] = field(default_factory=list[bool])
    task: str = NO_TASK

    @property
    def accepted_share(self) -> float:
        return sum(self.accepted) / len(self.accepted)


@dataclass(slots=True)
class Survey:
    """Result of one pass over the rollouts of `source`."""

    source: Source
    figures: Figures = field(default_factory=Figures)
    by_task: dict[str, Figures] = field(default_factory=dict[str, Figures])
    groups: dict[str, Outline] = field(default_factory=dict[str, Outline])
    other_problems: list[str] = field(default_factory=list[str])
    """Some that were there and not asked for, to name in a message."""


def survey(source: Source, problems: Collection[str]) -> Survey:
    """Look once at all rollouts of `source`, or at those of `problems`.

    Raises DataError: a line of the file is damaged.
    """
    found = Survey(source)
    for rollout in read_rollouts(source.path):
        if problems and rollout.item not in problems:
            if len(found.other_problems) < 1000 and rollout.item not in found.other_problems[-1:]:
                found.other_problems.append(rollout.item)
            continue
        for figures in (found.figures, found.by_task.setdefault(rollout.task, Figures())):
            figures.add(rollout)
        outline = found.groups.setdefault(rollout.group, Outline(rollout.item, task=rollout.task))
        outline.accepted.append(rollout.is_accepted)
    return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """A group of source number `source`; of its rollouts the first `rollouts` in the file."""

    source: int
    group: str
    rollouts: int


def choose_varied(surveys: Sequence[Survey], limit: int) -> list[Chosen]:
    """Groups of every source and task in turns, up to `limit` rollouts; in order of sources.

    Those of one source and task are chosen for variety.
    """
    lines: list[list[tuple[int, str]]] = []
    for index, survey in enumerate(surveys):
        for task in dict.fromkeys(outline.task for outline in survey.groups.values()):
            accepted = {name: found.accepted for name, found in survey.groups.items() if found.task == task}
            lines.append([(index, name) for name in varied(accepted)])
    turns = [place for turn in zip_longest(*lines) for place in turn if place is not None]
    chosen: list[Chosen] = []
    left = limit
    for index, name in turns:
        size = len(surveys[index].groups[name].accepted)
        if size > left and chosen:
            break
        chosen.append(Chosen(index, name, min(size, left)))
        left -= chosen[-1].rollouts
    return sorted(chosen, key=lambda group: group.source)


def choose_pairs(before: Survey, after: Survey, limit: int) -> list[tuple[Chosen, Chosen]]:
    """Problems that both have, up to `limit` rollouts; first where the share of accepted rollouts changed most."""
    pairs = sorted(shared_groups(before.groups, after.groups), key=lambda pair: -_change(before, after, pair))
    chosen: list[tuple[Chosen, Chosen]] = []
    left = limit
    for names in pairs:
        sizes = [len(survey.groups[name].accepted) for survey, name in zip((before, after), names, strict=True)]
        if sum(sizes) > left and chosen:
            break
        each = max(1, left // 2)
        old, new = (Chosen(index, names[index], min(sizes[index], each)) for index in (0, 1))
        chosen.append((old, new))
        left -= old.rollouts + new.rollouts
    return chosen


def shared_groups(before: Mapping[str, Outline], after: Mapping[str, Outline]) -> list[tuple[str, str]]:
    """The names of the groups of each problem that both have, in the order of `after`; of several the first."""
    of_item: dict[str, str] = {}
    for name, outline in before.items():
        of_item.setdefault(outline.item, name)
    pairs: dict[str, tuple[str, str]] = {}
    for name, outline in after.items():
        if outline.item in of_item:
            pairs.setdefault(outline.item, (of_item[outline.item], name))
    return list(pairs.values())


def _change(before: Survey, after: Survey, names: tuple[str, str]) -> float:
    return abs(after.groups[names[1]].accepted_share - before.groups[names[0]].accepted_share)
