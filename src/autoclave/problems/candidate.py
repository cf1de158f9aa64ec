"""Candidates for a training set, and their origins in public sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import Problem
from autoclave.core.json import from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Origin:
    """Identity of a problem in the set that it comes from.

    Attributes:
        set: name of the source in the settings, such as `taco`.
        row: file and place in it, such as `train.jsonl:17`, from 1; relative to what the source names.
        key: its id upstream, such as `codeforces/1349/A`; empty if unknown.
        url: page of the problem; empty if unknown.
        title: its title; empty if the set has no field for it.
    """

    set: str
    row: str
    key: str = ""
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ProblemCandidate:
    """A candidate for a training set. `facts` are measurements of stages, by name."""

    problem: Problem
    origin: Origin
    facts: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        return {"origin": to_plain(self.origin), "facts": dict(self.facts), "problem": self.problem.to_json()}

    @staticmethod
    def from_json(value: dict[str, Any], where: str) -> "ProblemCandidate":
        """Return the candidate of one parsed line. Raises DataError: the line is not a candidate."""
        problem = Problem.from_json(value["problem"], where)
        return ProblemCandidate(problem, from_plain(Origin, value["origin"], where), value["facts"])


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is not a problem, with the reason: a key for counting, and a sentence for users."""

    row: str
    reason: str
    detail: str
