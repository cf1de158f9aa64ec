"""The first stage: candidates from all sources, in their order, each with an id of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoclave.problems.candidate import Candidate, Origin, Unread
from autoclave.problems.curation.stage import Dropped


@dataclass(frozen=True, slots=True)
class ReadableSource:
    """A source: what reports call it, what its content depends on as JSON data, and how to read it."""

    label: str
    identity: Mapping[str, Any]
    read: Callable[[], Iterator[Candidate | Unread]]


class Reading:
    """All rows of all sources: candidates, and what is no problem with the reason.

    Ids of different sources may be equal: the later problem gets the first free number behind its id.
    """

    name = "read"
    notes: Sequence[str] = ()

    def __init__(self, sources: Sequence[ReadableSource]) -> None:
        self._sources = sources

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"sources": [[source.label, dict(source.identity)] for source in self._sources]}

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`; there are no candidates before it."""
        yield from candidates
        taken: dict[str, int] = {}
        for source in self._sources:
            for row in source.read():
                if isinstance(row, Unread):
                    yield Dropped(Origin(source.label, row.row), "", row.reason, row.detail)
                else:
                    problem = replace(row.problem, id=_free(row.problem.id, taken))
                    yield replace(row, problem=problem, origin=replace(row.origin, set=source.label))


def _free(id: str, taken: dict[str, int]) -> str:
    number = taken.get(id, 0) + 1
    taken[id] = number
    if number == 1:
        return id
    return _free(f"{id}-{number}", taken)
