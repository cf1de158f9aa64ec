"""From nouns to the columns of a store and back; the same for every database."""

from __future__ import annotations

import json
from typing import Any

from autoclave.core import CallTests, Problem, StdinTests
from autoclave.service.store.interface import JobSpec, ProblemRecord

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


def record_of(digest: str, about: str, size: int, created: float, statement: str | None = None) -> ProblemRecord:
    """The record of a row."""
    return ProblemRecord(digest=digest, size=size, created=created, statement=statement, **json.loads(about))


def options_of(spec: JobSpec) -> str:
    """All of a job but problem, program and label."""
    return json.dumps({name: getattr(spec, name) for name in _OPTIONS})


def spec_of(digest: str, label: str, source: bytes, options: str) -> JobSpec:
    """The job of a row."""
    return JobSpec(digest, source, label=label, **json.loads(options))
