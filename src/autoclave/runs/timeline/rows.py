"""Row of a picture for each interval, so that none covers another. Pure."""

from __future__ import annotations

from heapq import heappush, heapreplace

from autoclave.core.timeline import Interval


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
