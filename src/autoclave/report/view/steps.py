"""The table of steps: figures over all rollouts that were looked at, by step and, where there are several, by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.report import text
from autoclave.report.view.survey import Figures, Survey


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row. `side` is the number of the side that it is of, in a comparison."""

    side: int
    label: str
    task: str
    """Empty where no step has several."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Differences between the sides in what both have, in words."""

    task: str
    values: Sequence[str]


def step_rows(surveys: Sequence[Survey]) -> list[StepRow]:
    """The rows of the table."""
    is_split = _has_several_tasks(surveys)
    return [
        StepRow(side, survey.source.label, task if is_split else "", figures)
        for side, survey in enumerate(surveys)
        for task, figures in (survey.by_task or {"": survey.figures}).items()
    ]


def change_rows(before: Survey, after: Survey) -> list[ChangeRow]:
    """From the first side to the second: of each task that both have, or of all if each side has one task."""
    if not _has_several_tasks((before, after)):
        return [ChangeRow("", changes(before.figures, after.figures))]
    shared = [task for task in after.by_task if task in before.by_task]
    return [ChangeRow(task, changes(before.by_task[task], after.by_task[task])) for task in shared]


def changes(before: Figures, after: Figures) -> list[str]:
    """From one row to another, for the columns from `accepted` on; `–` where one is missing."""
    share = _difference(before.accepted_share, after.accepted_share)
    others = [
        _difference(before.reward.value, after.reward.value),
        _difference(before.masked, after.masked),
        _difference(before.cut, after.cut),
        _difference(before.length.value, after.length.value),
        _difference(before.mismatch.value, after.mismatch.value),
        _difference(before.max_mismatch, after.max_mismatch),
    ]
    in_words = ["–" if share is None else f"{text.points(share)} points"]
    return in_words + ["–" if change is None else text.change(change) for change in others]


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _has_several_tasks(surveys: Sequence[Survey]) -> bool:
    return any(len(survey.by_task) > 1 for survey in surveys)
