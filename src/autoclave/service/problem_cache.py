"""Least-recently-used cache of parsed problems, bounded in bytes."""

from dataclasses import replace

from autoclave.core import Problem
from autoclave.core.sized_cache import SizedCache
from autoclave.service.store.records import JobSpec, body_of
from autoclave.service.store.sql import Store

_Key = tuple[str, str, str | None, float | None, int | None]


class ProblemCache:
    """Problems with the language, profile and limits of a job.

    A judge caches results per `Problem` object as long as the object lives; this cache keeps it alive.
    """

    def __init__(self, store: Store, limit_bytes: int) -> None:
        self._store = store
        self._known = SizedCache[_Key, Problem](limit_bytes)

    def get(self, spec: JobSpec) -> Problem | None:
        """Return the problem of a job; None if it is not stored any more."""
        key = (spec.digest, spec.language, spec.profile, spec.time_limit_s, spec.memory_limit_mb)
        if known := self._known.get(key):
            return known
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
        return self._known.add(key, problem, min(len(body_of(problem)), self._known.limit))
