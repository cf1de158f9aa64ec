"""Interface of a stage of curation: candidates in, the same candidates out, each kept or dropped with a reason."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from autoclave.problems.candidate import Origin, ProblemCandidate, SkippedRow

_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Dropped:
    """Row or candidate that is left out of the training set.

    Attributes:
        origin: its row in a set.
        id: label of the problem; empty for a skipped row.
        reason: a key for counting.
        detail: a sentence for users, with the evidence.
        statement: the beginning of its statement.
    """

    origin: Origin
    id: str
    reason: str
    detail: str
    statement: str = ""

    @staticmethod
    def of(candidate: ProblemCandidate, reason: str, detail: str) -> "Dropped":
        return Dropped(candidate.origin, candidate.problem.id, reason, detail, candidate.problem.statement[:_SHOWN])


class Stage(Protocol):
    """A step whose result depends on the candidates and on `settings` alone."""

    @property
    def name(self) -> str:
        """Name in reports and folders."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that its result depends on beside the candidates, as JSON data."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the report after a run, such as limits that were reached."""
        ...

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        """Yield each candidate, kept or dropped, in any order. `candidates` can be iterated several times.

        Raises IncompleteError: some could not be decided; verdicts of the others are cached.
        """
        ...


@dataclass(frozen=True, slots=True)
class Filter:
    """A stage that decides on each candidate by itself."""

    name: str
    settings: Mapping[str, Any]
    decide: Callable[[ProblemCandidate], ProblemCandidate | Dropped]
    notes: Sequence[str] = ()

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        return map(self.decide, candidates)


@dataclass(frozen=True, slots=True)
class ReadableSource:
    """A source: its name in reports, the identity of its content as JSON data, and the function that reads it."""

    label: str
    identity: Mapping[str, Any]
    read: Callable[[], Iterator[ProblemCandidate | SkippedRow]]


class Reading:
    """Stage that reads all rows of all sources, and drops skipped rows.

    If an id occurs again, the later problem gets the first free number appended.
    """

    name = "read"
    notes: Sequence[str] = ()

    def __init__(self, sources: Sequence[ReadableSource]) -> None:
        self._sources = sources

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"sources": [[source.label, dict(source.identity)] for source in self._sources]}

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        """See `Stage`; `candidates` is empty."""
        yield from candidates
        taken: dict[str, int] = {}
        for source in self._sources:
            for row in source.read():
                if isinstance(row, SkippedRow):
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
