"""One pass over the rollouts of a step: figures over all of them, and an outline to choose from.

In memory are one rollout at a time and, of each, whether it was accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from autoclave.report.view.sources import Source
from autoclave.runs.rollouts import NO_TASK, RecordedRollout, read_rollouts, varied


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

    Raises:
        DataError: a line of the file is damaged.
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
