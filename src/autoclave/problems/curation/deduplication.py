"""Find duplicates in a stream of problems, and choose the one that is kept.

Three reasons: equal texts, similar statements, equal tests. A group of duplicates never holds two problems whose tests
contradict each other. The kept problem is the first by the order of sources, then by more tests, more solutions, and
its row; the result does not depend on the order of the stream. Nothing runs here; `comparing.py` compares programs.

Memory: some 400 bytes per problem, and a few kilobytes each in a folder for temporary files, which should be on disk.
"""

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
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.features import Features, FeatureStore, features_of
from autoclave.problems.curation.near_duplicates import Pairs, near_pairs, pairs_with_common_tests
from autoclave.problems.curation.similarity import (
    Similarity,
    WordFrequencies,
    can_be_run_on_each_other,
    has_same_tests,
    have_other_tests,
    is_near,
    is_same_text,
    measure_similarity,
)


class DuplicateReason(StrEnum):
    """Reason why two problems are duplicates."""

    EXACT = "exact"
    """The statements have the same words, numbers and operators, and no tests contradict each other."""
    NEAR = "near"
    """One statement is a reworded, renumbered or reformatted copy of the other."""
    BEHAVIOUR = "behaviour"
    """They expect the same of programs: equal tests, or solutions that pass each other's."""


@dataclass(frozen=True, slots=True)
class CandidateKey:
    """Identity of a problem before it is in a training set."""

    set: str
    row: str
    id: str

    @staticmethod
    def of(candidate: ProblemCandidate) -> "CandidateKey":
        return CandidateKey(candidate.origin.set, candidate.origin.row, candidate.problem.id)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A problem that is dropped, and its evidence.

    Attributes:
        dropped: the problem.
        kept: the problem that is kept instead.
        matched: the problem that it is a duplicate of: `kept`, or another one that is dropped for it.
        reason: the rule that matched.
        evidence: the similarity to `matched`.
    """

    dropped: CandidateKey
    kept: CandidateKey
    matched: CandidateKey
    reason: DuplicateReason
    evidence: Similarity


@dataclass(frozen=True, slots=True)
class WeakPair:
    """Two kept problems of one shape that may be duplicates: running their solutions decides."""

    better: CandidateKey
    other: CandidateKey
    evidence: Similarity


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Result of deduplication.

    Attributes:
        dropped: by set and row.
        num_statements: number of problems.
        num_large_buckets: number of groups of similar statements in which only some pairs were compared.
        weak: pairs of kept problems to run, the most similar first.
    """

    dropped: list[Duplicate]
    num_statements: int
    num_large_buckets: int
    weak: list[WeakPair]


def find_duplicates(
    candidates: Iterable[ProblemCandidate], config: DeduplicationConfig, sources: Sequence[str], folder: Path
) -> Duplicates:
    """Return the problems to drop. Reads `candidates` once.

    Args:
        candidates: from one or several sets.
        sources: names of sets, the preferred first; other sets come last.
        folder: for temporary files, some kilobytes per problem.

    Raises:
        InputError: a row of a set occurs twice.
        HostError: a library is missing.
    """
    with FeatureStore(folder) as store:
        return _Deduplication(candidates, config, sources, store).found(folder)


_Rank: TypeAlias = tuple[int, int, int, str, str]
_Pair: TypeAlias = tuple[int, int, Similarity]


class _Deduplication:
    def __init__(
        self,
        candidates: Iterable[ProblemCandidate],
        config: DeduplicationConfig,
        sources: Sequence[str],
        store: FeatureStore,
    ) -> None:
        self._config = config
        self._store = store
        self._frequencies = WordFrequencies()
        self._ids: list[str] = []
        self._ranks: list[_Rank] = []
        place_of = {name: place for place, name in enumerate(sources)}
        for candidate in candidates:
            features = features_of(candidate)
            store.add(features)
            self._frequencies.add(features.topic)
            origin, solutions = candidate.origin, candidate.problem.solutions
            place = place_of.get(origin.set, len(sources))
            self._ranks.append((place, -features.num_tests, -len(solutions), origin.set, origin.row))
            self._ids.append(candidate.problem.id)
        self._ordered = sorted(range(len(self._ids)), key=self._ranks.__getitem__)
        self._dropped: dict[int, tuple[int, DuplicateReason, Similarity]] = {}
        self._represented: dict[int, list[int]] = {}
        self._require_different_rows()

    def _require_different_rows(self) -> None:
        hashes = np.sort(np.fromiter((hash(rank[3:]) for rank in self._ranks), dtype=np.int64))
        suspected = set(hashes[:-1][hashes[1:] == hashes[:-1]].tolist())
        seen: set[tuple[str, str]] = set()
        for *_, name, row in (rank for rank in self._ranks if hash(rank[3:]) in suspected):
            if (name, row) in seen:
                raise InputError(f"{name}: row {shown(row)} occurs twice: rows of a set must be unique")
            seen.add((name, row))

    def found(self, folder: Path) -> Duplicates:
        if self._config.exact:
            self._drop_equal_texts()
        left = [number for number in self._ordered if number not in self._dropped]
        pairs, num_large = self._candidate_pairs(left, folder)
        weak = list(self._drop_near(left, pairs))
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
        """Return the pairs of kept problems with solutions, each once."""
        kept = {
            (better, other): evidence
            for better, other, evidence in weak
            if not self._dropped.keys() & {better, other} and self._ranks[better][2] and self._ranks[other][2]
        }
        ordered = sorted(kept, key=lambda pair: (-kept[pair].similarity, *(self._ranks[each] for each in pair)))
        return [WeakPair(self._key(better), self._key(other), kept[better, other]) for better, other in ordered]

    def _drop_equal_texts(self) -> None:
        """Compare the problems of each group of equal texts with those kept so far, which have different tests."""
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
        evidence = measure_similarity(left, right, self._frequencies)
        is_same = is_same_text(left, right, evidence, self._config) and not self._is_contradicted(kept, other)
        if is_same:
            self._drop(other, kept, DuplicateReason.EXACT, evidence)
        return is_same

    def _drop(self, other: int, kept: int, reason: DuplicateReason, evidence: Similarity) -> None:
        self._dropped[other] = (kept, reason, evidence)
        self._represented.setdefault(kept, []).extend([other, *self._represented.pop(other, [])])

    def _is_contradicted(self, kept: int, other: int) -> bool:
        """Return whether a member of the group of `kept` has tests that contradict a member of the group of `other`.

        Of large groups only the first members are compared. The two themselves are compared before.
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
            pairs, large = near_pairs(self._store, left, self._frequencies, self._config.bucket_limit, folder)
            found.append(pairs)
            num_large += large
        if self._config.near or self._config.behaviour:
            pairs, large = pairs_with_common_tests(self._store, left, self._config.bucket_limit, folder)
            found.append(pairs)
            num_large += large
        return (np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)), num_large

    def _drop_near(self, left: Sequence[int], pairs: Pairs) -> Iterator[_Pair]:
        """Drop duplicates of kept problems; yield the pairs that running their solutions could decide.

        Pairs are ordered by their better member, which is decided before its own pairs.
        """
        for better, other in ((left[pair >> 32], left[pair & 0xFFFFFFFF]) for pair in pairs.tolist()):
            if better in self._dropped or other in self._dropped:
                continue
            first, second = self._store[better], self._store[other]
            evidence = measure_similarity(first, second, self._frequencies)
            reason = self._reason(first, second, evidence)
            if (reason or self._config.behaviour) and self._is_contradicted(better, other):
                continue
            if reason:
                self._drop(other, better, reason, evidence)
            elif self._config.behaviour and can_be_run_on_each_other(first, second, evidence):
                yield better, other, evidence

    def _reason(self, first: Features, second: Features, evidence: Similarity) -> DuplicateReason | None:
        if self._config.near and is_near(first, second, evidence, self._config):
            return DuplicateReason.NEAR
        if self._config.behaviour and has_same_tests(evidence):
            return DuplicateReason.BEHAVIOUR
        return None

    def _pairs_of_one_shape(self) -> tuple[list[_Pair], int]:
        """Return all pairs of kept problems with solutions and tests of one shape, and the number of larger shapes."""
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

    def _runnable(self, better: int, other: int) -> Similarity | None:
        first, second = self._store[better], self._store[other]
        evidence = measure_similarity(first, second, self._frequencies)
        is_open = can_be_run_on_each_other(first, second, evidence) and not self._is_contradicted(better, other)
        return evidence if is_open else None

    def _duplicate(self, number: int) -> Duplicate:
        matched, reason, evidence = self._dropped[number]
        kept = matched
        while kept in self._dropped:
            kept = self._dropped[kept][0]
        return Duplicate(self._key(number), self._key(kept), self._key(matched), reason, evidence)

    def _key(self, number: int) -> CandidateKey:
        *_, name, row = self._ranks[number]
        return CandidateKey(name, row, self._ids[number])
