"""From nouns to the columns of a store and back; the same for every database."""

from __future__ import annotations

import json
from typing import Any

from autoclave.core import CallTests, Problem, StdinTests
from autoclave.service.store.interface import JobSpec, JobState, ProblemRecord
from autoclave.service.tokens import Scope, TokenRecord

_OPTIONS = ("language", "tests", "stop_at_failure", "profile", "time_limit_s", "memory_limit_mb")
_ABOUT = ("id", "language", "profile", "time_limit_s", "memory_limit_mb", "source", "difficulty", "tags")


def body_of(problem: Problem) -> bytes:
    """The line of a problem file, as it is stored."""
    return json.dumps(problem.to_json(), separators=(",", ":")).encode()


def problem_of(body: bytes) -> Problem:
    """The problem that `body_of` wrote."""
    return Problem.from_json(json.loads(body), "store")


def about(problem: Problem) -> str:
    """What may be read without its answers, but for the statement."""
    tests = problem.tests
    known: dict[str, Any] = {name: getattr(problem, name) for name in _ABOUT}
    known["kind"] = tests.kind
    known["num_tests"] = len(tests.cases) if isinstance(tests, StdinTests | CallTests) else 1
    return json.dumps(known)


def record_of(
    digest: str, about: str, size: int, created: float, statement: str | bytes | None = None
) -> ProblemRecord:
    """The record of a row."""
    text = None if statement is None else text_of(statement)
    return ProblemRecord(digest=digest, size=size, created=created, statement=text, **json.loads(about))


def options_of(spec: JobSpec) -> str:
    """All of a job but problem, program and label."""
    return json.dumps({name: getattr(spec, name) for name in _OPTIONS})


def spec_of(digest: str, label: str | bytes, source: bytes, options: str) -> JobSpec:
    """The job of a row."""
    return JobSpec(digest, source, label=text_of(label), **json.loads(options))


def state_of(
    id: str,
    batch: str,
    client: str,
    place: int,
    label: str | bytes,
    state: str,
    sequence: int | None,
    verdict: str | None,
) -> JobState:
    """The state of a row."""
    return JobState(id, batch, client, place, text_of(label), state, sequence, verdict)


def token_of(
    id: str, label: str, hash: str, scopes: str, created: float, expires: float | None, is_revoked: int
) -> TokenRecord:
    """The token of a row."""
    return TokenRecord(id, label, hash, frozenset(map(Scope, scopes.split())), created, expires, bool(is_revoked))


def free_text(text: str) -> bytes:
    """What a client wrote, for a column of type `free_text`."""
    return text.encode("utf-8", "surrogatepass")


def text_of(column: str | bytes) -> str:
    """What `free_text` wrote; files of the first version of the schema hold it as text."""
    return column if isinstance(column, str) else column.decode("utf-8", "surrogatepass")
