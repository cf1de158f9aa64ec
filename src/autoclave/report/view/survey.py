"""One pass over the rollouts of a step: figures over all of them, and an outline to choose from.

In memory are one rollout at a time and, of each, whether it was accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from autoclave.report.view.sources import Source
from autoclave.runs.rollouts import NO_TASK, RecordedRollout, read_rollouts


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


def together(parts: Iterable[Figures]) -> Figures:
    """The figures of several sets of rollouts that share none."""
    found = Figures()
    for part in parts:
        found.rollouts += part.rollouts
        found.accepted += part.accepted
        found.statuses.update(part.statuses)
        found.masked += part.masked
        found.cut += part.cut
        for mean, more in ((found.reward, part.reward), (found.length, part.length), (found.mismatch, part.mismatch)):
            mean.total += more.total
            mean.count += more.count
        if part.max_mismatch is not None:
            found.max_mismatch = max(found.max_mismatch or 0.0, part.max_mismatch)
    return found


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
    by_task: dict[str, Figures] = field(default_factory=dict[str, Figures])
    groups: dict[str, Outline] = field(default_factory=dict[str, Outline])
    other_problems: list[str] = field(default_factory=list[str])
    """Some that were there and not asked for, to name in a message."""

    @property
    def figures(self) -> Figures:
        """Over all tasks."""
        return together(self.by_task.values())


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
        found.by_task.setdefault(rollout.task, Figures()).add(rollout)
        outline = found.groups.setdefault(rollout.group, Outline(rollout.item, task=rollout.task))
        outline.accepted.append(rollout.is_accepted)
    return found
