"""The timeline of a step as a file, `autoclave-timeline/1`: a line about the step, then a line for each span.

Files are written whole. A step that is done again, as after a resume, replaces its file.
"""

import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoclave.core import DataError, InputError
from autoclave.core.compressed import COMPRESSION
from autoclave.core.files import atomic_writer, read_jsonl
from autoclave.core.json import from_plain, shown
from autoclave.core.timeline import Interval, Role, Span, StepTimeline, clipped, gaps, intersection, seconds, union

TIMELINE_FORMAT = "autoclave-timeline/1"
FOLDER = "timeline"
"""Of a run folder."""

_NAME = re.compile(r"step-(\d+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line of a file."""

    format: str
    step: int
    start: float
    end: float
    spans: int
    dropped: int
    moved: int


def timeline_path(run_folder: Path, step: int) -> Path:
    return run_folder / FOLDER / f"step-{step:06d}.jsonl.gz"


def timeline_steps(run_folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in (run_folder / FOLDER).glob("step-*.jsonl.gz"))
    return sorted(int(match[1]) for match in found if match)


def write_timeline(run_folder: Path, timeline: StepTimeline) -> None:
    """Write the file of a step. Raises HostError: the disk is full or fails."""
    start, end, counts = round(timeline.start, 6), round(timeline.end, 6), (timeline.dropped, timeline.moved)
    head = asdict(_Head(TIMELINE_FORMAT, timeline.step, start, end, len(timeline.spans), *counts))
    path = timeline_path(run_folder, timeline.step)
    with (
        atomic_writer(path, text=False) as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=COMPRESSION) as file,
    ):
        for line in (head, *map(_line, timeline.spans)):
            file.write(json.dumps(line).encode() + b"\n")


def _line(span: Span) -> dict[str, Any]:
    return asdict(span) | {"start": round(span.start, 6), "end": round(span.end, 6)}


def read_timeline(path: Path) -> StepTimeline:
    """The timeline in the file at `path`.

    Raises InputError: there is no such file. DataError: a line is damaged or of another format, or lines are missing.
    """
    lines = read_jsonl(path, "timeline")
    where, first = next(lines, (f"{path}:1", {}))
    if first.get("format") != TIMELINE_FORMAT:
        raise DataError(f'{where}: format = {shown(first.get("format"))}: must be "{TIMELINE_FORMAT}"')
    head = from_plain(_Head, first, where)
    _require_order(where, head.start, head.end)
    spans = tuple(_span(place, line) for place, line in lines)
    if len(spans) != head.spans:
        raise DataError(f"{path}: has {len(spans)} spans, and its first line says {head.spans}; it was cut or changed")
    return StepTimeline(head.step, head.start, head.end, spans, head.dropped, head.moved)


def _span(where: str, line: dict[str, Any]) -> Span:
    span = from_plain(Span, line, where)
    _require_order(where, span.start, span.end)
    return span


def _require_order(where: str, start: float, end: float) -> None:
    if not (math.isfinite(start) and math.isfinite(end) and start <= end):
        raise DataError(f"{where}: start = {start}, end = {end}: must be finite, and the start not after the end")


def read_steps(run_folder: Path, steps: Iterable[int]) -> Iterator[StepTimeline]:
    """The timelines of `steps`, one at a time. Raises InputError: a step has none. DataError: a file is damaged."""
    for step in steps:
        path = timeline_path(run_folder, step)
        if not path.is_file():
            raise InputError(f"step {step}: {run_folder} has no timeline of it; it has {_described(run_folder)}")
        yield read_timeline(path)


def _described(run_folder: Path) -> str:
    steps = timeline_steps(run_folder)
    return f"{len(steps)} of the steps {steps[0]} to {steps[-1]}" if steps else "none of any step"


def spans_during(run_folder: Path, timeline: StepTimeline) -> list[Span]:
    """All spans of the run that overlap the window of a step: its own, and those of later ones that began within it.

    Later files are read while they have such spans.

    Raises:
        DataError: a file is damaged.
    """
    low, high = timeline.window
    found = [span for span in timeline.spans if span.end > low and span.start < high]
    for step in timeline_steps(run_folder):
        if step > timeline.step:
            spans = read_timeline(timeline_path(run_folder, step)).spans
            if not spans or spans[0].start >= high:
                break
            found += [span for span in spans if span.end > low and span.start < high]
    return found


WORKING = (Role.SAMPLER, Role.JUDGE, Role.TRAINER)
"""The roles that a run is made of, one of which is its bottleneck."""

HIDDEN = {"reward": Role.JUDGE, "trainer": Role.TRAINER}
"""Roles that sampling can hide, as metrics name them."""


@dataclass(frozen=True, slots=True)
class RoleTimes:
    """Seconds of a step, or of several: of the whole, of each role, of each role hidden by sampling, and its idle gaps.

    `longest_gap_s` and `num_gaps` are of the time in which a role had nothing under way.
    """

    window_s: float
    busy_s: Mapping[Role, float]
    hidden_s: Mapping[Role, float]
    longest_gap_s: Mapping[Role, float]
    num_gaps: Mapping[Role, int]

    def busy(self, role: Role) -> float:
        """Share of the time in which `role` was busy."""
        return self.busy_s[role] / self.window_s if self.window_s else 0.0

    def hidden(self, role: Role) -> float | None:
        """Share of the busy time of `role` that sampling hid; None if it had none."""
        return self.hidden_s[role] / self.busy_s[role] if self.busy_s[role] else None

    @property
    def bottleneck(self) -> Role:
        """The busiest of sampler, judge and trainer; the first of equals."""
        return max(WORKING, key=lambda role: self.busy_s[role])


def role_times(spans: Iterable[Span], window: Interval) -> RoleTimes:
    """The times of all roles within `window`, whichever steps the spans are of."""
    covered = busy_intervals(spans, window)
    sampling = covered[Role.SAMPLER]
    idle = {role: gaps(covered[role], window) for role in Role}
    return RoleTimes(
        window[1] - window[0],
        {role: seconds(covered[role]) for role in Role},
        {role: seconds(intersection(covered[role], sampling)) for role in Role},
        {role: max((end - start for start, end in idle[role]), default=0.0) for role in Role},
        {role: len(idle[role]) for role in Role},
    )


def busy_intervals(spans: Iterable[Span], window: Interval) -> dict[Role, list[Interval]]:
    by_role: defaultdict[Role, list[Interval]] = defaultdict(list)
    for span in spans:
        by_role[span.role].append(span.interval)
    return {role: union(clipped(by_role[role], window)) for role in Role}


def together(parts: Sequence[RoleTimes]) -> RoleTimes:
    """The times of several steps as those of one; a gap is never longer than its step."""
    return RoleTimes(
        sum(part.window_s for part in parts),
        {role: sum(part.busy_s[role] for part in parts) for role in Role},
        {role: sum(part.hidden_s[role] for part in parts) for role in Role},
        {role: max((part.longest_gap_s[role] for part in parts), default=0.0) for role in Role},
        {role: sum(part.num_gaps[role] for part in parts) for role in Role},
    )


def share_metrics(times: RoleTimes) -> dict[str, float]:
    """`busy/...` of sampler, judge and trainer; `hidden/...` of reward and trainer, where they took any time."""
    metrics = {f"busy/{role}": times.busy(role) for role in WORKING}
    shares = {f"hidden/{name}": times.hidden(role) for name, role in HIDDEN.items()}
    return metrics | {name: share for name, share in shares.items() if share is not None}
