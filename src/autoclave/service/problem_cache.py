"""Least-recently-used cache of parsed problems, bounded in bytes."""

import threading
from collections import OrderedDict
from dataclasses import replace

from autoclave.core import Problem
from autoclave.service.store.records import JobSpec, body_of
from autoclave.service.store.sql import Store

_Key = tuple[str, str, str | None, float | None, int | None]


class ProblemCache:
    """Problems with the language, profile and limits of a job.

    A judge caches results per `Problem` object as long as the object lives; this cache keeps it alive.
    """

    def __init__(self, store: Store, limit_bytes: int) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, tuple[Problem, int]] = OrderedDict()
        self._bytes = 0

    def get(self, spec: JobSpec) -> Problem | None:
        """Return the problem of a job; None if it is not stored any more."""
        key = (spec.digest, spec.language, spec.profile, spec.time_limit_s, spec.memory_limit_mb)
        with self._lock:
            if known := self._known.get(key):
                self._known.move_to_end(key)
                return known[0]
        stored = self._store.problem(spec.digest)
        if stored is None:
            return None
        problem = replace(
            stored,
            language=spec.language,
            profile=spec.profile or stored.profile,
            time_limit_s=spec.time_limit_s or stored.time_limit_s,
            memory_limit_mb=spec.memory_limit_mb or stored.memory_limit_mb,
            solutions=[],
        )
        with self._lock:
            if known := self._known.get(key):
                return known[0]
            size = len(body_of(problem))
            self._known[key] = (problem, size)
            self._bytes += size
            while self._bytes > self._limit_bytes and len(self._known) > 1:
                _, (_, freed) = self._known.popitem(last=False)
                self._bytes -= freed
        return problem
