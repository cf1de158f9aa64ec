"""A problem on its way from a public set into a training set, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass

from autoclave.core import Problem


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
    """A problem that may become part of a training set."""

    problem: Problem
    origin: Origin


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that is no problem, with the reason: a word for counting, and a sentence for people."""

    row: str
    reason: str
    detail: str
