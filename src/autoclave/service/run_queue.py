"""Queue of the runs and traces of one server. Only for the tasks of its event loop.

Clients take turns by the time that their runs took, and short runs go first. As nobody knows beforehand which programs
are endless, a run begins with a small time limit; if it reaches that, it starts again behind the short ones, with more.
"""

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from autoclave.service.refusals import Refused, busy, draining

_FIRST_S, _GROWTH = 0.5, 4
"""Least CPU seconds of a first attempt, and the factor from one attempt to the next."""
_SHORT_S = 1.0
"""Most CPU seconds of an attempt that counts as short."""
_YIELDS = 10.0
"""For each second of its limit, an attempt lets pass what the same client sends that many seconds later."""
_REMEMBERED_S, _MOST_REMEMBERED = 900.0, 100_000
_WEIGHT = 0.2
"""Weight of one run in the mean time of its client's runs."""


@dataclass(order=True, slots=True)
class _Entry:
    """One attempt that waits."""

    rank: float
    number: int
    client: str = field(compare=False)
    limit_s: float = field(compare=False)
    must_stay: Callable[[], bool] = field(compare=False)
    started: asyncio.Future[None] = field(compare=False)

    @property
    def is_short(self) -> bool:
        return self.limit_s <= _SHORT_S


class RunQueue:
    """Runs `places` attempts at a time. Long ones leave a place to the short ones that wait.

    Two further places are for short attempts: one when only long ones run, both for clients of which nothing runs.
    """

    def __init__(self, places: int, most_waiting: int, is_draining: Callable[[], bool]) -> None:
        self._places = places
        self._most_waiting = most_waiting
        self._is_draining = is_draining
        self._waiting: defaultdict[tuple[str, bool], list[_Entry]] = defaultdict(list)
        self._running: list[_Entry] = []
        self._numbers = itertools.count()
        self._clock = 0.0
        self._used_s: defaultdict[str, float] = defaultdict(float)
        self._typical_s: dict[str, float] = {}
        self._refused: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self.num_admitted = 0
        """Attempts that wait or run."""

    def first_seen(self, client: str, run: bytes) -> tuple[float, bool]:
        """Return when the client sent the run first, and whether it was refused then, so that this is a retry."""
        known = self._refused.get((client, run))
        return (time.monotonic(), False) if known is None else (known, True)

    def remember(self, client: str, run: bytes) -> None:
        """Record that a run is refused, so that its retry comes before newer runs."""
        now = time.monotonic()
        while self._refused and (
            len(self._refused) >= _MOST_REMEMBERED or next(iter(self._refused.values())) < now - _REMEMBERED_S
        ):
            self._refused.popitem(last=False)
        self._refused.setdefault((client, run), now)

    def require_room(self, client: str, run: bytes) -> None:
        """Raise `Refused` if too many wait; retries of refused runs may be as many again."""
        is_retry = self.first_seen(client, run)[1]
        if self.num_admitted >= self._places + (2 if is_retry else 1) * self._most_waiting:
            self.remember(client, run)
            raise busy("too many runs wait. Fix: retry later", 1.0)

    def first_limit_s(self, client: str, limit_s: float) -> float:
        """Return the time limit of the first attempt at a run with this limit."""
        return self.next_limit_s(max(_FIRST_S / _GROWTH, self._typical_s.get(client, 0.0)), limit_s)

    def next_limit_s(self, last_s: float, limit_s: float) -> float:
        """Return the time limit of the attempt after one with `last_s`; the last attempt has the whole limit."""
        return last_s * _GROWTH if 2 * last_s * _GROWTH < limit_s else limit_s

    def note(self, client: str, cpu_s: float) -> None:
        """Record the time of a run that ended within its limit."""
        mean_s = self._typical_s.get(client, cpu_s)
        self._typical_s[client] = mean_s + _WEIGHT * (cpu_s - mean_s)

    @contextlib.asynccontextmanager
    async def place(
        self,
        client: str,
        limit_s: float,
        disconnected: asyncio.Future[None],
        since: float | None = None,
        must_stay: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[None]:
        """Wait for a place and hold it.

        Raises Refused: the client has disconnected, or the server is shutting down and `must_stay` returns False.
        """
        rank = (time.monotonic() if since is None else since) + _YIELDS * limit_s
        started = asyncio.get_running_loop().create_future()
        entry = _Entry(rank, next(self._numbers), client, limit_s, must_stay, started)
        others = itertools.chain(self._running, *self._waiting.values())
        if not any(one.client == client for one in others):
            self._used_s[client] = max(self._used_s[client], self._clock)
        heapq.heappush(self._waiting[client, entry.is_short], entry)
        self.num_admitted += 1
        try:
            self._start_next()
            await asyncio.wait({started, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                raise draining(1.0)  # nobody reads it
            started.result()
            begun = time.monotonic()
            try:
                yield
            finally:
                self._used_s[client] += time.monotonic() - begun - limit_s
        finally:
            started.cancel()
            entry.must_stay = bool  # the entry may stay in its heap, and must not hold the request
            self.num_admitted -= 1
            if entry in self._running:
                self._running.remove(entry)
            self._start_next()

    def _start_next(self) -> None:
        if self._is_draining():
            self._refuse_waiting(draining(1.0))
        while entry := self._next():
            heapq.heappop(self._waiting[entry.client, entry.is_short])
            self._running.append(entry)
            self._clock = max(self._clock, self._used_s[entry.client])
            self._used_s[entry.client] += entry.limit_s
            entry.started.set_result(None)

    def _next(self) -> _Entry | None:
        """Return the attempt that starts next, if one may."""
        for key, heap in list(self._waiting.items()):
            while heap and heap[0].started.done():  # its client has disconnected
                heapq.heappop(heap)
            if not heap:
                del self._waiting[key]
        first = [heap[0] for heap in self._waiting.values()]
        has_short = any(entry.is_short for entry in first)
        num_long = sum(not entry.is_short for entry in self._running)
        num_free = self._places - len(self._running)
        busy_clients = {entry.client for entry in self._running}

        def may_start(entry: _Entry) -> bool:
            if not entry.is_short:
                return num_free > 0 and (num_long < max(self._places - 1, 1) or not has_short)
            is_behind_long = num_free == 0 and num_long == self._places
            return num_free > 0 or is_behind_long or (num_free > -2 and entry.client not in busy_clients)

        return min(filter(may_start, first), key=lambda entry: (self._used_s[entry.client], entry), default=None)

    def _refuse_waiting(self, refusal: Refused) -> None:
        for entry in itertools.chain.from_iterable(self._waiting.values()):
            if not entry.started.done() and not entry.must_stay():
                entry.started.set_exception(refusal)
