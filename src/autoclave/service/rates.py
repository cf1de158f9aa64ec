"""Measure and limit rates. Pure: times are arguments."""

from collections import deque

SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 120.0


class RateMeter:
    """Rate of events over the last `window_s` seconds."""

    def __init__(self, window_s: float = 30.0) -> None:
        self._window_s = window_s
        self._ended: deque[tuple[float, int]] = deque()
        self._total = 0

    def note(self, now: float, count: int) -> None:
        self._ended.append((now, count))
        self._total += count
        self._drop(now)

    def per_s(self, now: float) -> float:
        """Return events per second since the first one in the window; 0 without one."""
        self._drop(now)
        if not self._ended:
            return 0.0
        return self._total / max(now - self._ended[0][0], 1.0)

    def _drop(self, now: float) -> None:
        while self._ended and self._ended[0][0] < now - self._window_s:
            self._total -= self._ended.popleft()[1]


def seconds_for(count: int, per_s: float) -> float:
    """Return the seconds until `count` more events at that rate, between 1 and 120."""
    return min(max(count / per_s, SHORTEST_WAIT_S), LONGEST_WAIT_S) if per_s else SHORTEST_WAIT_S


class TokenBuckets:
    """Token bucket per client: `per_s` requests on average, `burst` at once. A rate of 0 means no limit."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, client: str, now: float, per_s: float | None = None) -> float:
        """Count a request and return 0, or the seconds to wait. `per_s`: the client's own rate, if it has one."""
        per_s = self._per_s if per_s is None else per_s
        if not per_s:
            return 0.0
        left, since = self._left.get(client, (float(self._burst), now))
        left = min(left + (now - since) * per_s, float(self._burst))
        is_allowed = left >= 1.0
        self._left[client] = (left - 1.0 if is_allowed else left, now)
        return 0.0 if is_allowed else (1.0 - left) / per_s
