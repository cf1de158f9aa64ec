"""Where the service keeps problems, tokens and jobs: the protocol, SQLite and PostgreSQL. Imports core alone."""

from autoclave.service.store.interface import (
    Batch,
    Bounds,
    Event,
    JobSpec,
    JobState,
    KeyReused,
    Load,
    News,
    ProblemRecord,
    QueueFull,
    StartedJob,
    Store,
    StoreAway,
    Waiting,
    counts_of,
)

__all__ = [
    "Batch",
    "Bounds",
    "Event",
    "JobSpec",
    "JobState",
    "KeyReused",
    "Load",
    "News",
    "ProblemRecord",
    "QueueFull",
    "StartedJob",
    "Store",
    "StoreAway",
    "Waiting",
    "counts_of",
]
