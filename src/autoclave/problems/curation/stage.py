"""What a stage of curation is: candidates in, the same candidates out, each kept or dropped with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autoclave.problems.candidate import Candidate, Origin

_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Dropped:
    """What does not come into the training set.

    Attributes:
        origin: where it came from.
        id: label of the problem; empty where the row was never a problem.
        reason: a word for counting.
        detail: a sentence for people, with the evidence.
        statement: how its statement begins.
    """

    origin: Origin
    id: str
    reason: str
    detail: str
    statement: str = ""

    @staticmethod
    def of(candidate: Candidate, reason: str, detail: str) -> Dropped:
        """A candidate that is dropped."""
        return Dropped(candidate.origin, candidate.problem.id, reason, detail, candidate.problem.statement[:_SHOWN])


class Stage(Protocol):
    """One step. Its result depends on the candidates and on `settings` alone."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What its result depends on beside the candidates, as JSON data."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """After a run, what its result does not tell: sentences for the report, limits that were reached above all."""
        ...

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """Each candidate, kept or dropped, in any order. `candidates` can be gone through several times.

        Raises:
            IncompleteError: some could not be decided; what is known of the others is not lost.
        """
        ...


@dataclass(frozen=True, slots=True)
class Filter:
    """A stage that decides on each candidate by itself."""

    name: str
    settings: Mapping[str, Any]
    decide: Callable[[Candidate], Candidate | Dropped]
    notes: Sequence[str] = ()

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        return map(self.decide, candidates)
