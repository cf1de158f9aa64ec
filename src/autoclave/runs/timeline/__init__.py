"""Timelines of a run: files of spans, how busy each role was and what was hidden, and the export of a trace.

Spans are recorded on a `core.timeline.Timeline`; the pictures are drawn by `report`. Imports `core` alone; no torch.
"""

from autoclave.runs.timeline.chrome import write_trace
from autoclave.runs.timeline.files import (
    read_steps,
    read_timeline,
    spans_during,
    timeline_path,
    timeline_steps,
    write_timeline,
)
from autoclave.runs.timeline.files import (
    HIDDEN,
    WORKING,
    RoleTimes,
    busy_intervals,
    role_times,
    share_metrics,
    together,
)

__all__ = [
    "HIDDEN",
    "WORKING",
    "RoleTimes",
    "busy_intervals",
    "read_steps",
    "read_timeline",
    "role_times",
    "share_metrics",
    "spans_during",
    "timeline_path",
    "timeline_steps",
    "together",
    "write_timeline",
    "write_trace",
]
