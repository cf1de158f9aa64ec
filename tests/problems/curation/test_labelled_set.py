"""Copies of real statements are found, and similar real problems are kept."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from autoclave.config.curation import DecontaminationConfig, DeduplicationConfig
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.decontamination import Decontamination
from autoclave.problems.curation.deduplication import CandidateKey, Duplicate, find_duplicates
from tests.problems.curation.labelled import Planted, plant, real_problems

SAME_PROBLEM = {("mbpp", "602"), ("mbpp", "704"), ("mbpp", "76"), ("mbpp", "872"), ("mbpp", "779"), ("mbpp", "922")}
"""Rows of MBPP that ask what another row asks, in the same words or nearly so."""


@pytest.fixture(scope="module")
def real(data: Path) -> list[ProblemCandidate]:
    return list(real_problems(data))


@pytest.fixture(scope="module")
def similar(real: list[ProblemCandidate], tmp_path_factory: pytest.TempPathFactory) -> list[Duplicate]:
    """What is dropped of the real problems alone."""
    return duplicates(real, tmp_path_factory.mktemp("similar"))


@pytest.fixture(scope="module")
def against(real: list[ProblemCandidate]) -> Decontamination:
    evaluation = [each for each in real if each.origin.set in ("lcb", "leetcode")]
    return Decontamination(evaluation, DecontaminationConfig())


def copies_of(real: list[ProblemCandidate], sets: set[str], number: int, seed: int, tests: str) -> list[Planted]:
    return plant(random.Random(seed).sample([each for each in real if each.origin.set in sets], number), seed, tests)


def duplicates(candidates: list[ProblemCandidate], folder: Path) -> list[Duplicate]:
    return find_duplicates(candidates, DeduplicationConfig(), [], folder).dropped


def pair(duplicate: Duplicate) -> frozenset[CandidateKey]:
    return frozenset((duplicate.dropped, duplicate.matched))


def test_similar_real_problems_are_kept(real: list[ProblemCandidate], similar: list[Duplicate]):
    wrong = [each for each in similar if (each.dropped.set, each.dropped.row) not in SAME_PROBLEM]
    assert len(real) > 2000
    assert len(wrong) <= 6  # of 2098; four are rows of MBPP with equal tests
    left = {(each.origin.set, each.origin.row) for each in real} - {(x.dropped.set, x.dropped.row) for x in wrong}
    for easy_and_hard in (("1972D1", "1972D2"), ("1985H1", "1985H2"), ("1987G1", "1987G2"), ("1980F1", "1980F2")):
        assert {("codeforces", row) for row in easy_and_hard} <= left
    assert {("leetcode", "two-sum"), ("leetcode", "two-sum-ii-input-array-is-sorted")} <= left
    assert {("leetcode", "sentence-similarity"), ("leetcode", "sentence-similarity-ii")} <= left


@pytest.mark.parametrize(("tests", "least_recall"), [("same", 0.98), ("some", 0.95), ("none", 0.95)])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_labelled_duplicates_are_found_and_nothing_else(
    real: list[ProblemCandidate], similar: list[Duplicate], tmp_path: Path, tests: str, least_recall: float, seed: int
):
    planted = copies_of(real, {"apps", "code_contests", "codeforces", "lcb", "leetcode"}, 420, seed, tests)
    found = {pair(each) for each in duplicates([*real, *(each.copy for each in planted)], tmp_path)}
    found -= {pair(each) for each in similar}
    wanted = {frozenset((CandidateKey.of(each.original), CandidateKey.of(each.copy))): each.change for each in planted}
    right = found & wanted.keys()
    missed = Counter(wanted[each] for each in wanted.keys() - right)
    recall, precision = len(right) / len(wanted), len(right) / len(found)
    assert recall >= least_recall, f"missed: {missed}"
    assert precision >= 0.98, f"wrong: {found - right}"


@pytest.mark.parametrize(("tests", "least_recall"), [("same", 0.99), ("none", 0.98)])
def test_contaminated_problems_are_found(
    real: list[ProblemCandidate], against: Decontamination, tests: str, least_recall: float
):
    planted = copies_of(real, {"lcb", "leetcode"}, 420, 3, tests)
    hits = {hit.dropped: hit.evaluation for each in planted if (hit := against.find(each.copy))}
    right = sum(hits.get(CandidateKey.of(each.copy)) == CandidateKey.of(each.original) for each in planted)
    assert right / len(planted) >= least_recall


def test_problems_that_are_not_contaminated_pass(real: list[ProblemCandidate], against: Decontamination):
    training = [each for each in real if each.origin.set in ("apps", "code_contests", "codeforces", "mbpp")]
    wrong = [hit for each in training if (hit := against.find(each))]
    assert len(wrong) <= 0.005 * len(training)
