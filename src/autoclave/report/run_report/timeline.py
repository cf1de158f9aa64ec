"""The section of the report with the timeline: how busy each role was in the run, and when in one step of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from autoclave.core.errors import DataError
from autoclave.core.timeline import Interval, Role, Span, StepTimeline, union
from autoclave.report import text
from autoclave.report.charts import ticks
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

COLOURS = {
    Role.SAMPLER: "accepted",
    Role.JUDGE: "wrong_answer",
    Role.TRAINER: "compile_error",
    Role.PUBLISH: "runtime_error",
    Role.EVALUATION: "time_limit",
    Role.CHECKPOINT: "bad_format",
}
REPLICAS = 8
"""Most lanes of a role; a role with more replicas has one lane."""
_LEFT, _INNER, _LANE = 172, 936, 22
"""Width of the labels and of the strips, and height of a lane."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A step, what stands below its title, and when each role was busy, as SVG text."""

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
    """All that the section shows. `picture` is of the middle step; without one `missing` says why."""

    picture: Picture | None
    missing: str
    rows: tuple[RoleRow, ...]
    sentence: str


def timeline_section(run: Run) -> TimelineSection:
    """The section of a run; a file that is damaged is spoken of."""
    steps = [step for step in timeline_steps(run.folder) if step]
    picture, missing = None, "No timeline recorded."
    if steps:
        try:
            picture = draw(run, read_timeline(timeline_path(run.folder, steps[len(steps) // 2])))
        except DataError as error:
            missing = f"{error}."
    rows = role_rows(run.train)
    return TimelineSection(picture, missing, rows, _sentence(rows))


def draw(run: Run, timeline: StepTimeline) -> Picture:
    """The picture of a step, with all spans of the run that overlap it.

    Raises DataError: the file of a later step is damaged.
    """
    spans = spans_during(run.folder, timeline)
    times = role_times(spans, timeline.window)
    notes = [
        f"{text.duration(times.window_s)}.",
        " ".join(
            f"{role.capitalize()} busy {text.percent(times.busy(role))}"
            f" (idle at most {text.duration(times.longest_gap_s[role])} at a time)."
            for role in WORKING
        ),
        f"{text.count(timeline.dropped, 'span')} found no room and are missing." if timeline.dropped else "",
        f"{text.count(timeline.moved, 'span')} had times that cannot be, and were moved." if timeline.moved else "",
    ]
    return Picture(timeline.step, " ".join(filter(None, notes)), strips(spans, timeline.window))


def strips(spans: Iterable[Span], window: Interval) -> str:
    """A lane for each role and replica over the seconds of `window`, filled where at least one span is under way."""
    low, length = window[0], (window[1] - window[0]) or 1.0
    lanes = _lanes(spans)
    height = len(lanes) * _LANE
    marks = [
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>'
        f'<text class="tick" x="{x:.1f}" y="{height + 14}" text-anchor="middle">{tick:g} s</text>'
        for tick in ticks(0, length, 10)
        if (x := _LEFT + tick / length * _INNER)
    ]
    for index, ((role, lane), intervals) in enumerate(lanes.items()):
        y = index * _LANE + 4
        # Whole pixels, so that the size of the picture is bounded whatever the number of spans.
        pixels = union((_pixel((start - low) / length), _pixel((end - low) / length) + 1) for start, end in intervals)
        path = "".join(f"M{start} {y}H{end}V{y + _LANE - 8}H{start}Z" for start, end in pixels)
        marks.append(f'<text class="name" x="0" y="{y + 12}">{escape(f"{role} {lane}".strip()[:18])}</text>')
        marks.append(f'<path class="part c-{COLOURS[role]}" d="{path}"/>')
    box = f"0 0 {_LEFT + _INNER + 12} {height + 20}"
    return f'<svg viewBox="{box}" role="img" aria-label="when each role was busy">{"".join(marks)}</svg>'


def _pixel(share: float) -> int:
    return _LEFT + round(min(max(share, 0.0), 1.0) * _INNER)


def _lanes(spans: Iterable[Span]) -> dict[tuple[Role, str], list[Interval]]:
    """Intervals by role and replica, in order."""
    found: dict[tuple[Role, str], list[Interval]] = {}
    for span in spans:
        found.setdefault((span.role, span.lane), []).append(span.interval)
    ordered: dict[tuple[Role, str], list[Interval]] = {}
    for role in Role:
        lanes = sorted((lane for each, lane in found if each is role), key=lambda lane: (len(lane), lane))
        for lane in lanes:
            name = lane if len(lanes) <= REPLICAS else f"({len(lanes)})"
            ordered.setdefault((role, name), []).extend(found[role, lane])
    return ordered


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
