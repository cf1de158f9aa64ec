"""How fast something goes, and how fast somebody may go. Pure: times are handed in."""

from __future__ import annotations

from collections import deque

SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 120.0


class RateMeter:
    """How many ended per second of late."""

    def __init__(self, window_s: float = 30.0) -> None:
        self._window_s = window_s
        self._ended: deque[tuple[float, int]] = deque()
        self._total = 0

    def note(self, now: float, count: int) -> None:
        """So many ended."""
        self._ended.append((now, count))
        self._total += count
        self._drop(now)

    def per_s(self, now: float) -> float:
        """Per second over the window, or since the first that is in it; 0 while none is."""
        self._drop(now)
        if not self._ended:
            return 0.0
        return self._total / max(now - self._ended[0][0], 1.0)

    def _drop(self, now: float) -> None:
        while self._ended and self._ended[0][0] < now - self._window_s:
            self._total -= self._ended.popleft()[1]


def seconds_for(count: int, per_s: float) -> float:
    """When so many more will have ended, at that rate; within bounds that make sense for waiting."""
    return min(max(count / per_s, SHORTEST_WAIT_S), LONGEST_WAIT_S) if per_s else SHORTEST_WAIT_S


class TokenBuckets:
    """How many requests each client has left: `per_s` on average, `burst` at once. A rate of 0 is no limit."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, client: str, now: float) -> float:
        """0 if the client may go on, and it is counted; else how long it has to wait."""
        if not self._per_s:
            return 0.0
        left, since = self._left.get(client, (float(self._burst), now))
        left = min(left + (now - since) * self._per_s, float(self._burst))
        is_allowed = left >= 1.0
        self._left[client] = (left - 1.0 if is_allowed else left, now)
        return 0.0 if is_allowed else (1.0 - left) / self._per_s
