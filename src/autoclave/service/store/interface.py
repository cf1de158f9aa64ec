"""What every store keeps: problems by digest, tokens, and the table of jobs that survives the server.

Times are seconds since 1970. All methods may be called from several threads, block, and are whole or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.core import Problem
from autoclave.service.tokens import TokenRecord


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """What is known of a stored problem without its answers."""

    digest: str
    id: str
    kind: str
    num_tests: int
    language: str
    profile: str
    time_limit_s: float | None
    memory_limit_mb: int | None
    source: str
    difficulty: str
    tags: list[str]
    size: int
    created: float
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One program to judge, as the client asked. None leaves a limit or the profile to the problem."""

    digest: str
    source: bytes
    language: str = "python"
    label: str = ""
    tests: str = "all"
    stop_at_failure: bool = True
    profile: str | None = None
    time_limit_s: float | None = None
    memory_limit_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that were accepted together. `keep_s` is how long they outlive a client that is gone; None is for ever."""

    id: str
    client: str
    key: str
    fingerprint: str
    priority: int
    created: float
    deadline: float | None = None
    keep_s: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """An accepted job that has no verdict yet."""

    id: str
    batch: str
    client: str
    priority: int
    deadline: float | None


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job that is about to be judged, with how often it was begun, this time included."""

    id: str
    batch: str
    client: str
    spec: JobSpec
    starts: int


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job stands. `verdict` is JSON text once `state` is `done`; `sequence` orders what has ended."""

    id: str
    batch: str
    client: str
    place: int
    label: str
    state: str
    sequence: int | None
    verdict: str | None


class KeyReused(Exception):
    """An idempotency key came again with another request."""


class Store(Protocol):
    """Durable: what a method has done survives kill -9 of the process."""

    def put_problems(self, problems: Iterable[Problem]) -> list[bool]:
        """Keep problems by digest; for each, whether it was not there before."""
        ...

    def problem(self, digest: str) -> Problem | None:
        """A problem with its tests, also one that is deleted as long as a job waits for it."""
        ...

    def problem_records(self, digests: Sequence[str]) -> list[ProblemRecord]:
        """What is known of those among `digests` that are there, in any order."""
        ...

    def list_problems(self, after: str, limit: int) -> list[ProblemRecord]:
        """The first `limit` problems whose digest comes after `after`, by digest."""
        ...

    def delete_problem(self, digest: str) -> bool:
        """Hide a problem at once and remove it when no accepted job needs it; False if it is not there."""
        ...

    def add_token(self, token: TokenRecord) -> None: ...

    def token(self, id: str) -> TokenRecord | None: ...

    def tokens(self) -> list[TokenRecord]: ...

    def revoke_token(self, id: str) -> bool:
        """Make a token useless; False if there is none of that name."""
        ...

    def add_batch(self, batch: Batch, jobs: Sequence[tuple[str, JobSpec]]) -> Batch:
        """Accept jobs, each with its id. With a key that the client used before: the batch that it got then.

        Raises:
            KeyReused: that batch was another request.
        """
        ...

    def batch_of_key(self, client: str, key: str) -> Batch | None: ...

    def batch(self, id: str) -> Batch | None: ...

    def unfinished(self) -> list[Waiting]:
        """Every job without a verdict, in the order of acceptance."""
        ...

    def start(self, ids: Sequence[str]) -> list[StartedJob]:
        """Mark jobs as running; those that ended meanwhile are left out."""
        ...

    def finish(self, verdicts: Sequence[tuple[str, str]]) -> list[str]:
        """Keep verdicts (JSON) of jobs; the ids of those that had none yet and were not cancelled."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Cancel jobs; the ids of those that had not ended yet."""
        ...

    def job(self, id: str) -> JobState | None: ...

    def jobs_of(self, batch: str) -> list[JobState]:
        """All jobs of a batch, in their order, without verdicts."""
        ...

    def ended(self, batch: str, after: int) -> list[JobState]:
        """The jobs of a batch that ended after the one with sequence number `after`, as they ended."""
        ...

    def num_unfinished(self, batch: str) -> int: ...

    def purge(self, before: float) -> int:
        """Forget batches that ended, and were accepted before that time; how many."""
        ...

    def close(self) -> None: ...


def counts_of(states: Iterable[JobState]) -> dict[str, Any]:
    """How many jobs stand where."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state.state] = counts.get(state.state, 0) + 1
    return counts
