"""The parts of a server, which the composition root creates and the routes use."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from autoclave.config import ServeConfig
from autoclave.judge import Judge, PlainRunner
from autoclave.service.audit import AuditLog
from autoclave.service.dispatcher import Dispatcher
from autoclave.service.loop_thread import Notices
from autoclave.service.metrics import Metrics
from autoclave.service.nodes import Node
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.rates import TokenBuckets
from autoclave.service.refusals import busy
from autoclave.service.store.sql import Store


class RunQueue:
    """Queue of runs and traces: `places` at a time, `waiting` more wait, others are refused."""

    def __init__(self, places: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._limit = places + waiting
        self._num_admitted = 0

    @property
    def num_admitted(self) -> int:
        return self._num_admitted

    async def __aenter__(self) -> None:
        if self._num_admitted >= self._limit:
            raise busy("too many runs wait. Fix: retry later", 1.0)
        self._num_admitted += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._num_admitted -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._num_admitted -= 1
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
    run_queue: RunQueue
    is_stopping: threading.Event = field(default_factory=threading.Event)
    """Set when streams and waits must end."""
