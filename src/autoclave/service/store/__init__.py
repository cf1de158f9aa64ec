"""Store of problems, tokens and jobs: `Store`, its records, and its forms in SQLite and PostgreSQL."""

from autoclave.service.store.records import (
    Batch,
    Bounds,
    Event,
    EventKind,
    JobSpec,
    JobState,
    KeyReused,
    Load,
    QueueFull,
    StartedJob,
    StoreUnavailable,
)
from autoclave.service.store.sql import Store

__all__ = [
    "Batch",
    "Bounds",
    "Event",
    "EventKind",
    "JobSpec",
    "JobState",
    "KeyReused",
    "Load",
    "QueueFull",
    "StartedJob",
    "Store",
    "StoreUnavailable",
]
