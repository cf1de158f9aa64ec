"""What the routes work with: one object that the composition root fills."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from autoclave.config import ServeConfig
from autoclave.judge import Judge, PlainRunner
from autoclave.service.audit import AuditLog
from autoclave.service.dispatcher import Dispatcher
from autoclave.service.metrics import Metrics
from autoclave.service.nodes import Node
from autoclave.service.notices import Notices
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.rates import TokenBuckets
from autoclave.service.refusals import busy
from autoclave.service.store import Store


class Turns:
    """Places for work that has no queue of its own: so many at a time, and so many that wait."""

    def __init__(self, places: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._limit = places + waiting
        self._num_inside = 0

    @property
    def num_inside(self) -> int:
        """What has a place, or waits for one."""
        return self._num_inside

    async def __aenter__(self) -> None:
        if self._num_inside >= self._limit:
            raise busy("too many runs wait; there will be room later", 1.0)
        self._num_inside += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._num_inside -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._num_inside -= 1
        self._free.release()


@dataclass(slots=True)
class Parts:
    """The parts of one server."""

    config: ServeConfig
    judge: Judge
    runner: PlainRunner
    store: Store
    dispatcher: Dispatcher
    node: Node
    notices: Notices
    problems: ProblemCache
    audit: AuditLog
    metrics: Metrics
    buckets: TokenBuckets
    turns: Turns
    is_stopping: threading.Event = field(default_factory=threading.Event)
    """Streams and waits end."""
