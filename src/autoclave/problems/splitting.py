"""Split problems into some to train on and some to hold out, with near duplicates on one side."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from autoclave.config import DeduplicationConfig
from autoclave.core import AnswerTests, InputError, Problem
from autoclave.problems.candidate import Candidate, Origin
from autoclave.problems.curation.deduplication import find_duplicates


def split_problems(problems: Sequence[Problem], share: float, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Return the problems to train on and those to hold out, as by `heldout_ids`, both in their order.

    Raises:
        InputError: there are no two problems that differ.
        HostError: a library is missing.
    """
    candidates = [Candidate(problem, Origin("", str(number))) for number, problem in enumerate(problems)]
    heldout = heldout_ids(candidates, share, seed)
    if not heldout:
        raise InputError(f"{len(problems)} problems are too few to hold some out: all of them ask the same")
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[problem.id in heldout].append(problem)
    return sides


def heldout_ids(candidates: Iterable[Candidate], share: float, seed: int) -> set[str]:
    """Return the ids of a share of the problems, at least one; none if all ask the same.

    Problems that ask the same, or are near duplicates by the rules of curation, are all among them or none is. The
    choice depends on ids and `seed`, so that it stays the same for most problems when others are added. `candidates`
    are read twice, one at a time; their ids differ.

    Raises:
        HostError: a library is missing.
    """
    groups = _groups(candidates)
    count = sum(map(len, groups))
    wanted, heldout = max(1, round(share * count)), set[str]()
    for group in sorted(groups, key=lambda group: hashlib.sha256(f"{seed} {group[0]}".encode()).digest()):
        if len(heldout) + len(group) <= wanted:
            heldout.update(group)
    if not heldout or len(heldout) == count:
        heldout = set(min(groups, key=len)) if len(groups) > 1 else set()
    return heldout


def asked(problem: Problem) -> tuple[str, str]:
    """Return what problems that ask the same have in common: tests, and if those are an answer the words too."""
    return problem.digest, " ".join(problem.statement.split()) if isinstance(problem.tests, AnswerTests) else ""


def _groups(candidates: Iterable[Candidate]) -> list[list[str]]:
    """Return the ids of problems that belong together."""
    parents: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for candidate in candidates:
        parents[candidate.problem.id] = first.setdefault(asked(candidate.problem), candidate.problem.id)

    def root(id: str) -> str:
        while parents[id] != id:
            id = parents[id]
        return id

    with tempfile.TemporaryDirectory() as folder:
        found = find_duplicates(candidates, DeduplicationConfig(), [], Path(folder))
    for duplicate in found.dropped:
        parents[root(duplicate.dropped.id)] = root(duplicate.kept.id)
    groups: dict[str, list[str]] = {}
    for id in parents:
        groups.setdefault(root(id), []).append(id)
    return list(groups.values())
