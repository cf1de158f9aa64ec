"""Timelines of a run: files of spans, how busy each role was and what was hidden, and the export of a trace.

Spans are recorded on a `core.timeline.Timeline`; the pictures are drawn by `report`. Imports `core` alone; no torch.
"""

from autoclave.core.lazy import lazily
from autoclave.runs.timeline.chrome import write_trace as write_trace
from autoclave.runs.timeline.files import HIDDEN as HIDDEN
from autoclave.runs.timeline.files import WORKING as WORKING
from autoclave.runs.timeline.files import RoleTimes as RoleTimes
from autoclave.runs.timeline.files import busy_intervals as busy_intervals
from autoclave.runs.timeline.files import read_steps as read_steps
from autoclave.runs.timeline.files import read_timeline as read_timeline
from autoclave.runs.timeline.files import role_times as role_times
from autoclave.runs.timeline.files import share_metrics as share_metrics
from autoclave.runs.timeline.files import spans_during as spans_during
from autoclave.runs.timeline.files import timeline_path as timeline_path
from autoclave.runs.timeline.files import timeline_steps as timeline_steps
from autoclave.runs.timeline.files import together as together
from autoclave.runs.timeline.files import write_timeline as write_timeline

__getattr__ = lazily(__name__)
