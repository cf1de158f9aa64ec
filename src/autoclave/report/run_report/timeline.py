"""The section of the report with the timeline: the steps that are pictured, and how busy each role was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoclave.core.errors import DataError
from autoclave.core.timeline import Role, StepTimeline
from autoclave.report import text
from autoclave.report.run_report.gantt import COLOURS, gantt, told
from autoclave.runs.reader import Row, Run, number
from autoclave.runs.timeline import (
    HIDDEN,
    WORKING,
    read_timeline,
    role_times,
    spans_during,
    timeline_path,
    timeline_steps,
)

SHOWN_STEPS = 9
"""Most steps that are pictured."""
PICTURE_BYTES = 600_000
"""Most bytes of all pictures; steps that find no room are left out."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A step, what stands below its title, and its picture."""

    step: int
    note: str
    svg: str


@dataclass(frozen=True, slots=True)
class RoleRow:
    """Over all steps, the share of time in which a role was busy, and the share of that which sampling hid."""

    role: str
    colour: str
    busy: float
    hidden: float | None


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """All that the section shows. Without pictures the run has no timeline."""

    pictures: tuple[Picture, ...]
    chosen: int
    """The step that is shown at first: the middle one."""
    left_out: str
    """In words, which steps are not pictured and why; empty if all are."""
    rows: tuple[RoleRow, ...]
    sentence: str


def timeline_section(run: Run) -> TimelineSection:
    """The section of a run; a file that is damaged is spoken of and left out."""
    steps = [step for step in timeline_steps(run.folder) if step]
    pictures: dict[int, Picture] = {}
    damaged: list[str] = []
    size = 0
    for step in by_importance(steps)[:SHOWN_STEPS]:
        try:
            picture = draw(run, read_timeline(timeline_path(run.folder, step)))
        except DataError as error:
            damaged.append(str(error))
            continue
        size += len(picture.svg.encode())
        if size > PICTURE_BYTES:
            break
        pictures[step] = picture
    shown = sorted(pictures)
    rows = role_rows(run.train)
    return TimelineSection(
        tuple(pictures[step] for step in shown),
        shown[len(shown) // 2] if shown else 0,
        _left_out(len(steps), len(shown), damaged),
        rows,
        _sentence(rows),
    )


def by_importance(steps: Sequence[int]) -> list[int]:
    """The first, the last, the middle one, then those that halve what is between them, and so on."""
    places: list[int] = []
    parts = 1
    while len(places) < len(steps):
        around = [round(part * (len(steps) - 1) / parts) for part in range(parts + 1)]
        places += [place for place in dict.fromkeys(around) if place not in places]
        parts *= 2
    return [steps[place] for place in places]


def draw(run: Run, timeline: StepTimeline) -> Picture:
    """The picture of a step, with all spans of the run that overlap it.

    Raises:
        DataError: the file of a later step is damaged.
    """
    spans = spans_during(run.folder, timeline)
    times = role_times(spans, timeline.window)
    ahead = [span for span in spans if span.step > timeline.step]
    notes = [
        f"{text.duration(times.window_s)}: {told(spans) or 'nothing recorded'}.",
        " ".join(
            f"{role.capitalize()} busy {text.percent(times.busy(role))}"
            f" (idle at most {text.duration(times.longest_gap_s[role])} at a time)."
            for role in WORKING
        ),
        "Pale: for later steps." if ahead else "",
        f"{text.count(timeline.dropped, 'span')} found no room and are missing." if timeline.dropped else "",
        f"{text.count(timeline.moved, 'span')} had times that cannot be, and were moved." if timeline.moved else "",
    ]
    return Picture(timeline.step, " ".join(filter(None, notes)), gantt(spans, timeline.window, timeline.step))


def role_rows(train: Sequence[Row]) -> tuple[RoleRow, ...]:
    """Of all steps together, from their metrics; empty if none has them."""
    rows = [row for row in train if number(row, "busy/sampler") is not None]
    total = sum(_seconds(row) for row in rows)
    if not total:
        return ()
    names = {role: name for name, role in HIDDEN.items()}
    found: list[RoleRow] = []
    for role in WORKING:
        busy = [_seconds(row) * (number(row, f"busy/{role}") or 0.0) for row in rows]
        hidden = [
            part * (number(row, f"hidden/{names.get(role)}") or 0.0) for part, row in zip(busy, rows, strict=True)
        ]
        share = sum(hidden) / sum(busy) if role in names and sum(busy) else None
        found.append(RoleRow(str(role), COLOURS[role], sum(busy) / total, share))
    return tuple(found)


def _seconds(row: Row) -> float:
    return number(row, "time/step_s") or 0.0


def _sentence(rows: Sequence[RoleRow]) -> str:
    if not rows:
        return ""
    busiest = max(rows, key=lambda row: row.busy)
    hidden = {row.role: f"{text.percent(row.hidden)} of the time of " for row in rows if row.hidden is not None}
    words = {Role.JUDGE: "rewards", Role.TRAINER: "the trainer"}
    parts = " and ".join(hidden[role] + word for role, word in words.items() if role in hidden)
    return f"The {busiest.role} is the bottleneck, busy in {text.percent(busiest.busy)} of the time of all steps." + (
        f" Sampling hid {parts}." if parts else ""
    )


def _left_out(steps: int, shown: int, damaged: Sequence[str]) -> str:
    told = f"Pictured are {shown} of {text.count(steps, 'step')}." if shown < steps else ""
    return " ".join(filter(None, [told, *(f"Left out as damaged: {complaint}." for complaint in damaged)]))
