"""A problem on its way from a public set into a training set, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoclave.core import Problem
from autoclave.core.json import from_plain, to_plain


@dataclass(frozen=True, slots=True)
class Origin:
    """What a problem is known by where it was found.

    Attributes:
        set: name of the source in the settings, such as `taco`.
        row: file and place in it, such as `train.jsonl:17`, from 1; relative to what the source names.
        key: its id upstream, such as `codeforces/1349/A`; empty if it has none.
        url: page of the problem; empty if unknown.
        title: its title, where the set has one apart from the statement.
    """

    set: str
    row: str
    key: str = ""
    url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A problem that may become part of a training set. `facts` are what stages measured, by name."""

    problem: Problem
    origin: Origin
    facts: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        """The object of one line of a file between two stages."""
        return {"origin": to_plain(self.origin), "facts": dict(self.facts), "problem": self.problem.to_json()}

    @staticmethod
    def from_json(value: dict[str, Any], where: str) -> Candidate:
        """A candidate of one parsed line.

        Raises:
            DataError: it is none.
        """
        problem = Problem.from_json(value["problem"], where)
        return Candidate(problem, from_plain(Origin, value["origin"], where), value["facts"])


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that is no problem, with the reason: a word for counting, and a sentence for people."""

    row: str
    reason: str
    detail: str
