"""Which problems of a stream are the same, which of them is kept, and why.

Three reasons: the text, a statement that is nearly the same, the tests. A problem stands for no two whose tests
contradict each other. The kept one of several comes first in the
order of the sources, then by more tests, then by more solutions, then by its row. The answer does not depend on the
order of the stream. Nothing runs here; `behaviour.py` compares what programs do.

Memory: the names of problems and a few numbers each, some 400 bytes; a few kilobytes each lie in a folder for temporary
files, which should not be one that is itself in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product
from pathlib import Path
from typing import TypeAlias

import numpy as np

from autoclave.config.curation import DeduplicationConfig
from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.neighbours import Pairs, near_pairs, pairs_with_common_tests
from autoclave.problems.curation.similarity import (
    Likeness,
    WordFrequencies,
    can_be_run_on_each_other,
    has_same_tests,
    have_other_tests,
    is_near,
    is_same_text,
    likeness,
)
from autoclave.problems.curation.store import TraitStore
from autoclave.problems.curation.traits import Traits, traits_of


class DuplicateReason(StrEnum):
    """Why two problems are one."""

    EXACT = "exact"
    """The statements have the same words, numbers and operators, and no tests contradict each other."""
    NEAR = "near"
    """One statement is a reworded, renumbered or reformatted copy of the other."""
    BEHAVIOUR = "behaviour"
    """They expect the same of programs: equal tests, or solutions that pass each other's."""


@dataclass(frozen=True, slots=True)
class Name:
    """How a problem is known before it is in a training set."""

    set: str
    row: str
    id: str

    @staticmethod
    def of(candidate: Candidate) -> Name:
        return Name(candidate.origin.set, candidate.origin.row, candidate.problem.id)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A problem that is dropped, and its evidence.

    Attributes:
        dropped: the problem.
        kept: the one that stands for it.
        like: the one that it was found to be the same as: `kept`, or another one dropped for it.
        reason: how that was found.
        evidence: in numbers.
    """

    dropped: Name
    kept: Name
    like: Name
    reason: DuplicateReason
    evidence: Likeness


@dataclass(frozen=True, slots=True)
class WeakPair:
    """Two kept problems of one shape that are somewhat alike: running their solutions would tell."""

    better: Name
    other: Name
    evidence: Likeness


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What deduplication found.

    Attributes:
        dropped: by set and row.
        num_statements: how many were compared.
        num_large_buckets: in how many groups of similar statements not all pairs were compared.
        weak: pairs of kept problems worth running, the most similar first.
    """

    dropped: list[Duplicate]
    num_statements: int
    num_large_buckets: int
    weak: list[WeakPair]


def find_duplicates(
    candidates: Iterable[Candidate], config: DeduplicationConfig, sources: Sequence[str], folder: Path
) -> Duplicates:
    """The problems to drop. Reads `candidates` once; temporary files go to `folder`.

    Args:
        candidates: from one or several sets.
        config: what counts as the same.
        sources: names of sets, the preferred first; sets that are not named come last.
        folder: a place for temporary files, some kilobytes per problem.

    Raises:
        InputError: a row of a set comes twice.
        HostError: a library is missing.
    """
    with TraitStore(folder) as store:
        return _Deduplication(candidates, config, sources, store).found(folder)


_Rank: TypeAlias = tuple[int, int, int, str, str]
_Pair: TypeAlias = tuple[int, int, Likeness]


class _Deduplication:
    def __init__(
        self, candidates: Iterable[Candidate], config: DeduplicationConfig, sources: Sequence[str], store: TraitStore
    ) -> None:
        self._config = config
        self._store = store
        self._frequencies = WordFrequencies()
        self._ids: list[str] = []
        self._ranks: list[_Rank] = []
        place_of = {name: place for place, name in enumerate(sources)}
        for candidate in candidates:
            traits = traits_of(candidate)
            store.add(traits)
            self._frequencies.add(traits.topic)
            origin, solutions = candidate.origin, candidate.problem.solutions
            place = place_of.get(origin.set, len(sources))
            self._ranks.append((place, -traits.num_tests, -len(solutions), origin.set, origin.row))
            self._ids.append(candidate.problem.id)
        self._ordered = sorted(range(len(self._ids)), key=self._ranks.__getitem__)
        self._dropped: dict[int, tuple[int, DuplicateReason, Likeness]] = {}
        self._represented: dict[int, list[int]] = {}
        self._require_different_rows()

    def _require_different_rows(self) -> None:
        hashes = np.sort(np.fromiter((hash(rank[3:]) for rank in self._ranks), dtype=np.int64))
        suspected = set(hashes[:-1][hashes[1:] == hashes[:-1]].tolist())
        seen: set[tuple[str, str]] = set()
        for *_, name, row in (rank for rank in self._ranks if hash(rank[3:]) in suspected):
            if (name, row) in seen:
                raise InputError(f"{name}: row {shown(row)} comes twice; each row of a set must have its own name")
            seen.add((name, row))

    def found(self, folder: Path) -> Duplicates:
        if self._config.exact:
            self._drop_equal_texts()
        left = [number for number in self._ordered if number not in self._dropped]
        pairs, num_large = self._candidate_pairs(left, folder)
        weak = list(self._drop_alike(left, pairs))
        if self._config.behaviour:
            of_one_shape, num_large_shapes = self._pairs_of_one_shape()
            weak, num_large = weak + of_one_shape, num_large + num_large_shapes
        dropped = [self._duplicate(number) for number in self._dropped]
        return Duplicates(
            dropped=sorted(dropped, key=lambda each: (each.dropped.set, each.dropped.row)),
            num_statements=len(self._ids),
            num_large_buckets=num_large,
            weak=self._most_similar(weak),
        )

    def _most_similar(self, weak: list[_Pair]) -> list[WeakPair]:
        """Pairs of kept problems that have solutions, each once."""
        kept = {
            (better, other): evidence
            for better, other, evidence in weak
            if not self._dropped.keys() & {better, other} and self._ranks[better][2] and self._ranks[other][2]
        }
        ordered = sorted(kept, key=lambda pair: (-kept[pair].similarity, *(self._ranks[each] for each in pair)))
        return [WeakPair(self._name(better), self._name(other), kept[better, other]) for better, other in ordered]

    def _drop_equal_texts(self) -> None:
        """Of each group of equal texts, all are compared with the first of each meaning that their tests give it."""
        texts = np.array([self._store[number].text for number in self._ordered], dtype="S16")
        order = np.argsort(texts, kind="stable")
        firsts: list[int] = []
        for place, at in enumerate(order):
            if not place or texts[at] != texts[order[place - 1]]:
                firsts = []
            if texts[at] and not any(self._drop_if_equal(first, self._ordered[at]) for first in firsts):
                firsts = [*firsts, self._ordered[at]][: self._config.bucket_limit]

    def _drop_if_equal(self, kept: int, other: int) -> bool:
        left, right = self._store[kept], self._store[other]
        evidence = likeness(left, right, self._frequencies)
        is_same = is_same_text(left, right, evidence, self._config) and not self._is_contradicted(kept, other)
        if is_same:
            self._drop(other, kept, DuplicateReason.EXACT, evidence)
        return is_same

    def _drop(self, other: int, kept: int, reason: DuplicateReason, evidence: Likeness) -> None:
        self._dropped[other] = (kept, reason, evidence)
        self._represented.setdefault(kept, []).extend([other, *self._represented.pop(other, [])])

    def _is_contradicted(self, kept: int, other: int) -> bool:
        """Whether a problem that one of two stands for, or would, has tests against one of the other's side.

        Looks at the first members of each side alone where there are many. The two themselves are compared before.
        """
        if not self._represented.keys() & {kept, other}:
            return False
        left, right = (
            [self._store[each] for each in [number, *self._represented.get(number, ())][: self._config.bucket_limit]]
            for number in (kept, other)
        )
        return any(have_other_tests(*pair) for pair in product(left, right))

    def _candidate_pairs(self, left: Sequence[int], folder: Path) -> tuple[Pairs, int]:
        found: list[Pairs] = []
        num_large = 0
        if self._config.near:
            pairs, large = near_pairs(self._store, left, self._frequencies, self._config, folder)
            found.append(pairs)
            num_large += large
        if self._config.near or self._config.behaviour:
            pairs, large = pairs_with_common_tests(self._store, left, self._config.bucket_limit, folder)
            found.append(pairs)
            num_large += large
        return (np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)), num_large

    def _drop_alike(self, left: Sequence[int], pairs: Pairs) -> Iterator[_Pair]:
        """Drop what is like a kept problem of a better place; yield the pairs that running them could settle.

        Pairs come by their better member, so that what becomes of it is known when its pairs come.
        """
        for better, other in ((left[pair >> 32], left[pair & 0xFFFFFFFF]) for pair in pairs.tolist()):
            if better in self._dropped or other in self._dropped:
                continue
            first, second = self._store[better], self._store[other]
            evidence = likeness(first, second, self._frequencies)
            reason = self._reason(first, second, evidence)
            if (reason or self._config.behaviour) and self._is_contradicted(better, other):
                continue
            if reason:
                self._drop(other, better, reason, evidence)
            elif self._config.behaviour and can_be_run_on_each_other(first, second, evidence):
                yield better, other, evidence

    def _reason(self, first: Traits, second: Traits, evidence: Likeness) -> DuplicateReason | None:
        if self._config.near and is_near(first, second, evidence, self._config):
            return DuplicateReason.NEAR
        if self._config.behaviour and has_same_tests(evidence):
            return DuplicateReason.BEHAVIOUR
        return None

    def _pairs_of_one_shape(self) -> tuple[list[_Pair], int]:
        """All pairs of kept problems with solutions and tests of one shape, and how many shapes have too many."""
        members: dict[str, list[int]] = {}
        for number in self._ordered:
            if number not in self._dropped and self._ranks[number][2]:
                members.setdefault(self._store[number].shape, []).append(number)
        small = [group for group in members.values() if len(group) <= self._config.bucket_limit]
        pairs = [
            (better, other, evidence)
            for group in small
            for better, other in combinations(group, 2)
            if (evidence := self._runnable(better, other))
        ]
        return pairs, len(members) - len(small)

    def _runnable(self, better: int, other: int) -> Likeness | None:
        first, second = self._store[better], self._store[other]
        evidence = likeness(first, second, self._frequencies)
        is_open = can_be_run_on_each_other(first, second, evidence) and not self._is_contradicted(better, other)
        return evidence if is_open else None

    def _duplicate(self, number: int) -> Duplicate:
        like, reason, evidence = self._dropped[number]
        kept = like
        while kept in self._dropped:
            kept = self._dropped[kept][0]
        return Duplicate(self._name(number), self._name(kept), self._name(like), reason, evidence)

    def _name(self, number: int) -> Name:
        *_, name, row = self._ranks[number]
        return Name(name, row, self._ids[number])
