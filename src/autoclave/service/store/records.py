"""Records of the store, and their conversion to columns and back. Times are seconds since 1970."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from autoclave.core import CallTests, Problem, StdinTests
from autoclave.service.tokens import Limits, Scope, TokenRecord
from autoclave.service.wire import StoredProblem

_OPTIONS = ("language", "tests", "stop_at_failure", "profile", "time_limit_s", "memory_limit_mb")
_ABOUT = ("id", "language", "profile", "time_limit_s", "memory_limit_mb", "source", "difficulty", "tags")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A program to judge. None takes a limit or the profile from the problem."""

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
    """Jobs accepted together. They stay queued `keep_s` seconds after their client disconnects; None is for ever."""

    id: str
    client: str
    key: str
    fingerprint: str
    priority: int
    created: float
    deadline: float | None = None
    keep_s: float | None = None
    request: str = ""
    """Id of the request that brought them."""


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A claimed job, with the number of its starts, this one included, and when and by which request it came."""

    id: str
    batch: str
    client: str
    spec: JobSpec
    starts: int
    created: float
    request: str


@dataclass(frozen=True, slots=True)
class JobState:
    """State of a job. `verdict` is JSON once `state` is `done`; `sequence` numbers the ended jobs of a batch."""

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
    """Limits of queued jobs: of all clients, and of one."""

    total: int
    of_client: int


@dataclass(frozen=True, slots=True)
class Load:
    """Queued jobs, clients that have some, and slots and verdicts per second of all other nodes."""

    waiting: int
    clients: int
    slots: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds of a client's programs in this hour and this day."""

    hour_s: float = 0.0
    day_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Jobs of a client that have not ended, and when the oldest of them was accepted."""

    client: str
    waiting: int
    running: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Server:
    """A node, which answers to its id and its name; `silent_s` is the time since its last heartbeat."""

    id: str
    name: str
    slots: int
    per_s: float
    silent_s: float


class EventKind(StrEnum):
    """Kind of an event."""

    WAITING = "waiting"
    """Jobs can be claimed."""
    ENDED = "ended"
    """Jobs of a batch have ended."""
    CANCELLED = "cancelled"
    """Jobs of a batch were cancelled; nodes may stop them."""
    UNKNOWN = "unknown"
    """Events may have been lost: anything may have changed."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change in the store, of a batch if it is named."""

    kind: EventKind
    batch: str = ""


class KeyReused(Exception):
    """An idempotency key was used for another request."""


class QueueFull(Exception):
    """The queue is full: `excess` jobs are too many."""

    def __init__(self, excess: int, *, is_own_share: bool) -> None:
        super().__init__(f"{excess} too many")
        self.excess = excess
        self.is_own_share = is_own_share


class StoreUnavailable(Exception):
    """The database does not respond. It is unknown whether the change was made; another try may succeed."""

    def __init__(self, reason: str = "the connection failed") -> None:
        super().__init__(reason)


def body_of(problem: Problem) -> bytes:
    """Return the line of a problem file that is stored."""
    return json.dumps(problem.to_json(), separators=(",", ":")).encode()


def problem_of(body: bytes) -> Problem:
    return Problem.from_json(json.loads(body), "store")


def about(problem: Problem) -> str:
    """Return the fields of a problem without tests and statement, as JSON."""
    tests = problem.tests
    known: dict[str, Any] = {name: getattr(problem, name) for name in _ABOUT}
    known["kind"] = tests.kind
    known["num_tests"] = len(tests.cases) if isinstance(tests, StdinTests | CallTests) else 1
    return json.dumps(known)


def record_of(
    digest: str, about: str, size: int, created: float, statement: str | bytes | None = None
) -> StoredProblem:
    text = None if statement is None else text_of(statement)
    return StoredProblem(digest=digest, size=size, created=created, statement=text, **json.loads(about))


def options_of(spec: JobSpec) -> str:
    """Return the options of a job as JSON: all but problem, program and label."""
    return json.dumps({name: getattr(spec, name) for name in _OPTIONS})


def spec_of(digest: str, label: str | bytes, source: bytes, options: str) -> JobSpec:
    return JobSpec(digest, source, label=text_of(label), **json.loads(options))


def state_of(row: Sequence[Any]) -> JobState:
    id, batch, client, place, label, *rest = row
    return JobState(id, batch, client, place, text_of(label), *rest)


def token_of(row: Sequence[Any]) -> TokenRecord:
    """Return the token of a row; scopes of later programs are left out."""
    id, label, hash, scopes, created, expires, is_revoked, limits = row
    known = {Scope(scope) for scope in scopes.split() if scope in list(Scope)}
    limits = json.loads(limits)
    known |= {Scope.ADMIN} if limits.get("is_admin") else set()
    kept = Limits(**{field.name: limits.get(field.name) for field in fields(Limits)})
    return TokenRecord(id, label, hash, frozenset(known), created, expires, bool(is_revoked), kept)


def free_text(text: str) -> bytes:
    """Encode a string of a client for a column of type `free_text`."""
    return text.encode("utf-8", "surrogatepass")


def text_of(column: str | bytes) -> str:
    """Decode a column of type `free_text`; the first version of the schema has text."""
    return column if isinstance(column, str) else column.decode("utf-8", "surrogatepass")
