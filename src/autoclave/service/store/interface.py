"""What every store keeps: problems by digest, tokens, and the table of jobs that survives the server.

A store object is what one server, a node, sees of it; other nodes may share what is stored. Jobs wait there in turn:
the highest priority goes first, within it clients take turns, and the jobs of one client are in their order.

Times are seconds since 1970. All methods may be called from several threads, block, and are whole or nothing. They
raise `StoreAway` where a database does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most jobs that may wait: of all clients, and of one."""

    total: int
    of_client: int


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is to do, and by whom: `slots` and `per_s` (verdicts of late) are those of all other nodes."""

    waiting: int
    clients: int
    slots: int
    per_s: float


class News(StrEnum):
    """What nodes tell each other."""

    WAITING = "waiting"
    """There are jobs to claim."""
    ENDED = "ended"
    """Jobs of a batch have ended."""
    CANCELLED = "cancelled"
    """Jobs of a batch were cancelled; whoever has them may stop."""
    UNKNOWN = "unknown"
    """News may have been missed: anything can have happened."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened, to a batch if it is named."""

    news: News
    batch: str = ""


class KeyReused(Exception):
    """An idempotency key came again with another request."""


class QueueFull(Exception):
    """There is no room for so many; `excess` of them would have to leave first."""

    def __init__(self, excess: int, *, is_own_share: bool) -> None:
        super().__init__(f"{excess} too many")
        self.excess = excess
        self.is_own_share = is_own_share


class StoreAway(Exception):
    """The database does not answer. What was asked is not done, or nobody knows; later it may be."""

    def __init__(self, reason: str = "the connection failed") -> None:
        super().__init__(reason)


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

    def add_batch(self, batch: Batch, jobs: Sequence[tuple[str, JobSpec]], bounds: Bounds | None = None) -> Batch:
        """Accept jobs, each with its id. With a key that the client used before: the batch that it got then.

        This node is taken to watch the batch, as `watch` says.

        Raises:
            KeyReused: that batch was another request.
            QueueFull: so many would wait as the bounds forbid.
        """
        ...

    def batch_of_key(self, client: str, key: str) -> Batch | None: ...

    def batch(self, id: str) -> Batch | None: ...

    def unfinished(self) -> list[Waiting]:
        """Every job without a verdict, in the order of acceptance."""
        ...

    def claim(self, count: int, now: float) -> list[StartedJob]:
        """Take up to `count` jobs whose turn it is, which no other node gets. Those that are too late stay."""
        ...

    def expire(self, now: float, verdict: str) -> float | None:
        """Give a verdict to all jobs that wait and whose deadline has come; the next deadline of one that waits."""
        ...

    def finish(self, verdicts: Sequence[tuple[str, str]]) -> list[str]:
        """Keep verdicts (JSON) of jobs; the ids of those that had none yet and were not cancelled."""
        ...

    def cancel(self, ids: Sequence[str]) -> list[str]:
        """Cancel jobs; the ids of those that had not ended yet."""
        ...

    def ended_among(self, ids: Collection[str]) -> list[str]:
        """Those of the jobs that have ended, or are not known any more."""
        ...

    def job(self, id: str) -> JobState | None: ...

    def jobs_of(self, batch: str) -> list[JobState]:
        """All jobs of a batch, in their order, without verdicts."""
        ...

    def ended(self, batch: str, after: int) -> list[JobState]:
        """The jobs of a batch that ended after the one with sequence number `after`, as they ended."""
        ...

    def is_finished(self, batch: str) -> bool:
        """Whether all jobs of a batch have ended."""
        ...

    def load(self) -> Load: ...

    def purge(self, before: float) -> int:
        """Forget batches of which all jobs have ended, the last before that time; how many."""
        ...

    # --- Several nodes ---------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Begin to take jobs, as a new node."""
        ...

    def beat(self, slots: int, per_s: float) -> None:
        """Say that this node is alive, judges so many at a time, and so many per second of late."""
        ...

    def adopt(self, lease_s: float) -> list[Batch]:
        """Take over from nodes that gave no sign of life for so long, or have left.

        Their jobs wait again; what they watched this node watches now, and gets told.
        """
        ...

    def give_back(self, keep: Collection[str]) -> None:
        """Let the jobs that this node claimed wait again, but for those to keep. They do not count as begun."""
        ...

    def leave(self) -> None:
        """Take no jobs any more, and give back what this node has."""
        ...

    def watch(self, batch: str) -> None:
        """A client waits for the batch at this node."""
        ...

    def abandon(self, batch: str) -> int:
        """The client is gone for good from this node. Cancel the batch if it waits at no other; how many jobs."""
        ...

    def listen(self, hear: Callable[[Event], None]) -> None:
        """Call `hear` for all that happens from now on, by whichever node, from any thread. It must not block."""
        ...

    def close(self) -> None: ...


def counts_of(states: Iterable[JobState]) -> dict[str, Any]:
    """How many jobs stand where."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state.state] = counts.get(state.state, 0) + 1
    return counts
