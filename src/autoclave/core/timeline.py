"""Timelines: `Span`, the roles that spans are of, and `Timeline`, which any thread records them on.

All times are of one clock, that of the process that records: seconds since 1970 when the timeline was made, counted on
by a clock that never steps. What another process stamped by its wall clock is placed by its age (`Timeline.placed`).
Not here: files of spans, and what follows from them (`runs.timeline`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time that at least one of `intervals` covers. Those without length are left out."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > start:
            merged.append((start, end))
    return merged


def intersection(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The time that both unions cover."""
    common: list[Interval] = []
    left = right = 0
    while left < len(first) and right < len(second):
        start, end = max(first[left][0], second[right][0]), min(first[left][1], second[right][1])
        if end > start:
            common.append((start, end))
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return common


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of `intervals` within `window`, in their order; nothing is merged."""
    low, high = window
    return [(max(start, low), min(end, high)) for start, end in intervals if end > low and start < high]


def gaps(covered: Sequence[Interval], window: Interval) -> list[Interval]:
    """The time of `window` that the union `covered` leaves."""
    inside = clipped(covered, window)
    edges = [window[0], *(edge for interval in inside for edge in interval), window[1]]
    return [(start, end) for start, end in zip(edges[0::2], edges[1::2], strict=True) if end > start]


def seconds(intervals: Iterable[Interval]) -> float:
    """Their lengths, added up."""
    return sum(end - start for start, end in intervals)


Attribute = str | int | float | bool | None
Interval = tuple[float, float]
"""Start and end in seconds, start <= end."""

CAPACITY = 1 << 18
"""Most spans that a timeline holds. It is emptied at each step, and one of so many takes about 150 MB."""

SLACK_S = 1e-3
"""A time is moved by more than this before it counts as moved: clocks are not read at one instant."""


class Role(StrEnum):
    """Role that a span belongs to."""

    SAMPLER = "sampler"
    """A request, from when it was asked for to its last token."""
    JUDGE = "judge"
    """A reward, from the response to the verdict; time in the judge's queue included."""
    TRAINER = "trainer"
    """An update of the policy from some groups."""
    PUBLISH = "publish"
    """New weights on their way to the samplers."""
    EVALUATION = "evaluation"
    """An evaluation on held-out problems."""
    CHECKPOINT = "checkpoint"
    """The run waits for a checkpoint: a copy is made, or the one before is not written yet."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a role did from `start` to `end`, in seconds of the timeline's clock.

    `step` is the step of the run that it belongs to, counted from 1 (the iteration + 1; 0 is before training). With
    pipelining it can differ from the step during which it happened. `lane` says which of several, as a replica; empty
    where there is one.
    """

    role: Role
    name: str
    start: float
    end: float
    step: int
    lane: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])

    @property
    def interval(self) -> Interval:
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """The spans of one step by their start, and when the step began and ended.

    The windows of steps do not overlap: one ends at the schedule's barrier, and the next begins after what is done
    between two, as evaluation. `dropped` spans found no room; of `moved` ones a time was out of order and was moved.
    """

    step: int
    start: float
    end: float
    spans: tuple[Span, ...]
    dropped: int = 0
    moved: int = 0

    @property
    def window(self) -> Interval:
        return self.start, self.end


class Timeline:
    """Records spans, a few microseconds each, from any thread, and holds those of the step under way and later ones."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._offset = time.time() - time.monotonic()
        self._capacity = capacity
        self._lock = threading.Lock()
        self._clear(0)

    def _clear(self, step: int) -> None:
        self._spans: dict[int, list[Span]] = {}
        self._held = self._dropped = self._moved = 0
        self._step = step
        self._start, self._end = self.now(), None

    def now(self) -> float:
        """Seconds by the clock of this timeline."""
        return self._offset + time.monotonic()

    def placed(self, stamp: float) -> float:
        """Position of `stamp`, seconds of a wall clock, on this timeline: as long ago as it is by the wall clock here.

        So a wall clock that is set misplaces only what is under way at that moment. Of another machine, the difference
        of the two wall clocks stays in it.
        """
        now = self.now()
        return now - (time.time() - stamp)

    def record(
        self,
        role: Role,
        name: str,
        start: float,
        end: float,
        *,
        step: int | None = None,
        lane: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        not_before: float = 0.0,
    ) -> None:
        """Add a span of `step`, by default of the step under way.

        Times before `not_before`, or in the future, are moved to these bounds, an end before its start is moved there,
        and both are counted. A span of a step that was forgotten already stands with the step under way.
        """
        now = self.now()
        placed = min(max(start, not_before), now) if math.isfinite(start) else not_before
        ended = max(placed, min(end, now)) if math.isfinite(end) else placed
        is_moved = not (abs(placed - start) <= SLACK_S and abs(ended - end) <= SLACK_S)
        with self._lock:
            self._moved += is_moved
            if self._held >= self._capacity:
                self._dropped += 1
                return
            own = self._step if step is None else step
            self._held += 1
            self._spans.setdefault(max(own, self._step), []).append(
                Span(role, name, placed, ended, own, lane, attributes or {})
            )

    @contextmanager
    def time(self, role: Role, name: str, **attributes: Attribute) -> Generator[None]:
        """Record the block as a span of the step under way, also when it fails."""
        start, step = self.now(), self._step
        try:
            yield
        finally:
            self.record(role, name, start, self.now(), step=step, attributes=attributes)

    def begin(self, step: int) -> None:
        """Work on `step` begins. Spans of earlier steps are forgotten; all are where it goes back to an earlier one."""
        with self._lock:
            later = {number: spans for number, spans in self._spans.items() if number >= step > self._step}
            self._clear(step)
            self._spans, self._held = later, sum(map(len, later.values()))

    def end(self) -> None:
        """The step under way is at its barrier. What is recorded of it from now on lies outside of its window."""
        self._end = self.now()

    def recorded(self) -> StepTimeline:
        """The step under way, with the spans of it so far."""
        with self._lock:
            spans = tuple(sorted(self._spans.get(self._step, ()), key=lambda span: span.start))
            end = self.now() if self._end is None else self._end
            return StepTimeline(self._step, self._start, end, spans, self._dropped, self._moved)

    def all_spans(self) -> list[Span]:
        """Recorded spans of the step under way and of later ones."""
        with self._lock:
            return [span for spans in self._spans.values() for span in spans]
