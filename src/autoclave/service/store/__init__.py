"""Where the service keeps problems, tokens and jobs: the protocol, and SQLite. Imports core alone."""

from autoclave.service.store.interface import (
    Batch,
    JobSpec,
    JobState,
    KeyReused,
    ProblemRecord,
    StartedJob,
    Store,
    Waiting,
    counts_of,
)

__all__ = [
    "Batch",
    "JobSpec",
    "JobState",
    "KeyReused",
    "ProblemRecord",
    "StartedJob",
    "Store",
    "Waiting",
    "counts_of",
]
