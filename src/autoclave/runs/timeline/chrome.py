"""A timeline in the trace event format, which chrome://tracing and Perfetto open.

A process is a role, a thread a row of a lane: spans of one thread never overlap. Counters say how many requests and
rewards are under way. Times are microseconds since the first span.

Source: Trace Event Format, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

import json
from array import array
from collections.abc import Iterable, Iterator
from heapq import heappush, heapreplace
from pathlib import Path
from typing import Any

from autoclave.core.files import atomic_writer
from autoclave.core.timeline import Interval, Role, StepTimeline

Event = dict[str, Any]

COUNTED = {Role.SAMPLER: "requests in flight", Role.JUDGE: "rewards in flight"}
STEPS_PROCESS = 0
"""The process whose one thread has the steps themselves."""

_PROCESSES = {role: number for number, role in enumerate(Role, start=1)}


def write_trace(timelines: Iterable[StepTimeline], path: Path) -> int:
    """Write the trace of `timelines`, in order of their steps, to `path`; how many spans it has.

    One step at a time is in memory, and eight bytes for each end of a request.

    Raises:
        InputError: nothing can be written at `path`.
        HostError: the disk is full or fails.
    """
    count = 0
    with atomic_writer(path) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for number, event in enumerate(trace_events(timelines)):
            file.write((",\n" if number else "\n") + json.dumps(event))
            count += event["ph"] == "X" and event["pid"] != STEPS_PROCESS
        file.write("\n]}\n")
    return count


def trace_events(timelines: Iterable[StepTimeline]) -> Iterator[Event]:
    """The events of `timelines`: spans, then counters, then names. Their order has no meaning in the format."""
    lanes: dict[tuple[Role, str], Rows] = {}
    threads: dict[tuple[Role, str, int], int] = {}
    starts, ends = ({role: array("d") for role in COUNTED} for _ in range(2))
    origin: float | None = None
    for timeline in timelines:
        if origin is None:
            origin = min([timeline.start, *(span.start for span in timeline.spans)])
        yield _complete(f"step {timeline.step}", STEPS_PROCESS, 0, timeline.window, origin)
        for span in timeline.spans:
            row = lanes.setdefault((span.role, span.lane), Rows()).take(span.interval)
            thread = threads.setdefault((span.role, span.lane, row), len(threads) + 1)
            event = _complete(span.name, _PROCESSES[span.role], thread, span.interval, origin)
            yield event | {"cat": str(span.role), "args": {"step": span.step, **span.attributes}}
            if span.role in COUNTED:
                starts[span.role].append(_microseconds(span.start, origin))
                ends[span.role].append(_microseconds(span.end, origin))
    for role, name in COUNTED.items():
        yield from _counter(name, _PROCESSES[role], starts[role], ends[role])
    yield from _names(threads)


def _microseconds(time: float, origin: float) -> float:
    """Of `time` since `origin`, with a resolution of a nanosecond; never below 0."""
    return max(0.0, round((time - origin) * 1e6, 3))


def _complete(name: str, process: int, thread: int, interval: tuple[float, float], origin: float) -> Event:
    start, end = (_microseconds(time, origin) for time in interval)
    return {"name": name, "ph": "X", "ts": start, "dur": round(end - start, 3), "pid": process, "tid": thread}


def _counter(name: str, process: int, starts: "array[float]", ends: "array[float]") -> Iterator[Event]:
    """Number under way, at each time that it changes."""
    edges = sorted([*((time, 1) for time in starts), *((time, -1) for time in ends)])
    level = 0
    for index, (time, change) in enumerate(edges):
        level += change
        if index + 1 == len(edges) or edges[index + 1][0] > time:
            yield {"name": name, "ph": "C", "ts": time, "pid": process, "tid": 0, "args": {"count": level}}


def _names(threads: dict[tuple[Role, str, int], int]) -> Iterator[Event]:
    """Processes are named by their role, threads by their lane and row; both stand in the order of the numbers."""
    used = {role for role, _, _ in threads}
    yield from _metadata("process", STEPS_PROCESS, 0, "steps", STEPS_PROCESS)
    for role in Role:
        if role in used:
            yield from _metadata("process", _PROCESSES[role], 0, str(role), _PROCESSES[role])
    for order, ((role, lane, row), thread) in enumerate(sorted(threads.items())):
        name = " ".join(part for part in (lane, f"row {row + 1}") if part)
        yield from _metadata("thread", _PROCESSES[role], thread, name, order)


def _metadata(kind: str, process: int, thread: int, name: str, order: int) -> Iterator[Event]:
    place = {"ph": "M", "pid": process, "tid": thread}
    yield {"name": f"{kind}_name", **place, "args": {"name": name}}
    yield {"name": f"{kind}_sort_index", **place, "args": {"sort_index": order}}


class Rows:
    """Hands out rows, numbered from 0, in which no two intervals overlap.

    Intervals that come in order of their start take no more rows than are under way at once.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def take(self, interval: Interval) -> int:
        """The row of the next interval: the one that has been empty for longest, or a new one."""
        start, end = interval
        if self._ends and self._ends[0][0] <= start:
            row = self._ends[0][1]
            heapreplace(self._ends, (end, row))
        else:
            row = len(self._ends)
            heappush(self._ends, (end, row))
        return row
