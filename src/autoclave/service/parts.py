"""The parts of a server, which the composition root creates and the routes use."""

import threading
from dataclasses import dataclass, field

from autoclave.config import ServeConfig
from autoclave.judge import PlainRunner, ProcessJudge
from autoclave.service.audit import AuditLog, JsonLog
from autoclave.service.dispatcher import Dispatcher
from autoclave.service.leases import Leases
from autoclave.service.loop_thread import Notices
from autoclave.service.metrics import Metrics
from autoclave.service.nodes import Node
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.rates import TokenBuckets
from autoclave.service.run_queue import RunQueue
from autoclave.service.store.sql import Store
from autoclave.service.tokens import Client


@dataclass(slots=True)
class Parts:
    """The parts of one server."""

    config: ServeConfig
    judge: ProcessJudge
    runner: PlainRunner
    store: Store
    dispatcher: Dispatcher
    node: Node
    notices: Notices
    problems: ProblemCache
    audit: AuditLog
    access_log: JsonLog | None
    metrics: Metrics
    buckets: TokenBuckets
    run_queue: RunQueue
    leases: Leases
    is_stopping: threading.Event = field(default_factory=threading.Event)
    """Set when streams and waits must end."""

    def largest_batch(self, client: Client) -> int:
        """Return the most jobs that one request of a client may have."""
        limit = self.config.admission.largest_batch
        return limit if client.limits.queue is None else min(limit, client.limits.queue)
