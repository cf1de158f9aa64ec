"""Measure the similarity of two problems, and decide on it. Pure functions of their features."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autoclave.config.curation import DeduplicationConfig
from autoclave.problems.curation.features import CASES_LIMIT, Features, WordHashes

_SLOTS = 1 << 21
_PRIOR_STATEMENTS = 1000
_COMMON_SHARE = 0.15
_FEWEST_RARE = 3
_FEWEST_SAMPLED = 4


class WordFrequencies:
    """Document frequencies of words, in 8 MiB whatever their number; rare words weigh more in comparisons.

    Words that share a slot are counted together, which lowers their weights a little.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_SLOTS, dtype=np.uint32)
        self.num_statements = 0

    def add(self, topic: WordHashes) -> None:
        self.num_statements += 1
        np.add.at(self._counts, topic % _SLOTS, 1)

    def weights(self, words: WordHashes) -> NDArray[np.float64]:
        """Return the weight of each word: its inverse document frequency, smoothed by a thousand prior statements."""
        everything = self.num_statements + _PRIOR_STATEMENTS
        return np.log1p(everything / (self._counts[words % _SLOTS] + 1.0))

    def rare(self, words: WordHashes) -> WordHashes:
        """Return `words` without common ones, or all if too few remain."""
        limit = max(_PRIOR_STATEMENTS * _COMMON_SHARE, self.num_statements * _COMMON_SHARE)
        kept = words[self._counts[words % _SLOTS] <= limit]
        return kept if len(kept) >= _FEWEST_RARE else words


class TestRelation(StrEnum):
    """Relation of the tests of two problems."""

    __test__ = False  # not a test class of pytest
    SAME = "same"
    """All inputs of the problem with fewer tests are shared, with equal outputs; or the test code is equal."""
    AGREEING = "agreeing"
    """Some inputs are shared, all with equal outputs."""
    CONTRADICTING = "contradicting"
    """A shared input has different outputs."""
    DISJOINT = "disjoint"
    """No input is shared, though their tests have one shape."""
    UNKNOWN = "unknown"
    """One has no comparable tests, or their tests have different shapes."""


@dataclass(frozen=True, slots=True)
class SharedTests:
    """Comparison of the tests of two problems.

    Attributes:
        relation: of their tests.
        shared: number of inputs in both.
        disagreeing: number of these with different outputs.
        different_outputs: number of different outputs of the others.
        coverage: share of the inputs of the problem with fewer tests that is in both.
        same_code: True if both have the same test code.
    """

    relation: TestRelation
    shared: int = 0
    disagreeing: int = 0
    different_outputs: int = 0
    coverage: float = 0.0
    same_code: bool = False


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of two problems.

    Attributes:
        similarity: share of their content words in both, rare words weighing more (weighted Jaccard).
        containment: the same as a share of the problem with less of them.
        wording: share of all their words, numbers and operators in both (Jaccard).
        tests: comparison of their tests.
        topic_words: different content words in the problem with fewer.
        all_words: different words, numbers and operators in the problem with fewer.
    """

    similarity: float
    containment: float
    wording: float
    tests: SharedTests
    topic_words: int
    all_words: int


def measure_similarity(left: Features, right: Features, frequencies: WordFrequencies) -> Similarity:
    """Return the similarity of two problems. Symmetric."""
    both, lesser, either = _weights(left.topic, right.topic, frequencies)
    return Similarity(
        similarity=both / either if either else 0.0,
        containment=both / lesser if lesser else 0.0,
        wording=_jaccard(left.words, right.words),
        tests=compare_tests(left, right),
        topic_words=min(len(left.topic), len(right.topic)),
        all_words=min(len(left.words), len(right.words)),
    )


def _weights(left: WordHashes, right: WordHashes, frequencies: WordFrequencies) -> tuple[float, float, float]:
    """Return the weights of the words in both, of the words of the lighter one, and of the words in either."""
    both = float(frequencies.weights(np.intersect1d(left, right, assume_unique=True)).sum())
    of_left, of_right = float(frequencies.weights(left).sum()), float(frequencies.weights(right).sum())
    return both, min(of_left, of_right), of_left + of_right - both


def _jaccard(left: WordHashes, right: WordHashes) -> float:
    both = len(np.intersect1d(left, right, assume_unique=True))
    either = len(left) + len(right) - both
    return both / either if either else 0.0


def compare_tests(left: Features, right: Features) -> SharedTests:
    _, at_left, at_right = np.intersect1d(left.inputs, right.inputs, assume_unique=True, return_indices=True)
    largest = min(_largest_kept(left), _largest_kept(right))
    fewer = min(int((features.inputs <= largest).sum()) for features in (left, right))
    same_code = 0 != left.code == right.code
    if same_code and not len(at_left):
        return SharedTests(TestRelation.SAME, coverage=1.0, same_code=True)
    if not len(at_left):
        is_comparable = fewer and left.shape == right.shape
        return SharedTests(TestRelation.DISJOINT if is_comparable else TestRelation.UNKNOWN)
    outputs = left.outputs[at_left]
    agreeing = outputs == right.outputs[at_right]
    if fewer < _FEWEST_SAMPLED:  # too few to represent tests that were not kept
        fewer = min(len(left.inputs), len(right.inputs))
    relation = TestRelation.SAME if len(at_left) == fewer else TestRelation.AGREEING
    return SharedTests(
        relation=relation if agreeing.all() else TestRelation.CONTRADICTING,
        shared=len(at_left),
        disagreeing=int((~agreeing).sum()),
        different_outputs=len(np.unique(outputs[agreeing])),
        coverage=len(at_left) / fewer,
        same_code=same_code,
    )


def _largest_kept(features: Features) -> np.uint64:
    """Return the largest hash up to which the features have all inputs of the problem."""
    return features.inputs[-1] if len(features.inputs) == CASES_LIMIT else np.uint64(2**64 - 1)


_SAME_WORDING = 0.97
_SAME_SHORT_WORDING = 0.87
_TESTS_PER_DISAGREEMENT = 4
_DISTINCTIVE_OUTPUTS = 3
_DISTINCTIVE_TESTS = 10
_DISTINCTIVE_WITHOUT_WORDS = 5


def is_near(left: Features, right: Features, found: Similarity, config: DeduplicationConfig) -> bool:
    """Return whether one statement is a copy of the other, reworded, renumbered or reformatted.

    Problems differ if too many shared inputs have different outputs, whatever the words; a few may have several right
    answers. Two versions of a problem differ, and two problems of one site are equal only if all words or tests are.
    The more of the tests agree, the fewer common words suffice.
    """
    if _contradict(found.tests):
        return False
    if left.version and right.version and left.version != right.version:
        return False
    if found.all_words < config.shortest_statement and not has_same_tests(found):
        return _is_same_short_text(found)
    if left.version or right.version or _are_named_apart(left, right):
        return found.wording >= _SAME_WORDING or found.tests.relation is TestRelation.SAME
    needed = _needed(left, right, found, config)
    is_within = found.containment >= config.containment and needed <= config.similarity
    return found.similarity >= (needed / 2 if is_within else needed)


def _are_named_apart(left: Features, right: Features) -> bool:
    """Return whether one site has both, under two names."""
    sites = {name.partition("/")[0] for name in left.names} & {name.partition("/")[0] for name in right.names}
    return bool(sites) and not left.names & right.names


def _is_same_short_text(found: Similarity) -> bool:
    """Return whether two short statements are equal. Many problems share a few words: nearly all must, and tests."""
    is_supported = found.tests.relation in (TestRelation.SAME, TestRelation.AGREEING) and found.tests.shared > 1
    return is_supported and found.wording >= _SAME_SHORT_WORDING and found.similarity >= _SAME_WORDING


def _needed(left: Features, right: Features, found: Similarity, config: DeduplicationConfig) -> float:
    """Return the similarity that two problems need to count as near, given the relation of their tests."""
    if found.tests.relation is TestRelation.SAME or left.names & right.names:
        return config.similarity_of_same_tests
    if found.tests.relation is TestRelation.AGREEING:
        return config.similarity_of_same_tests if found.tests.coverage >= 0.5 else config.similarity
    has_topic = found.topic_words >= config.fewest_topic_words or found.wording >= config.similarity
    if found.tests.relation is TestRelation.UNKNOWN and has_topic:
        return config.similarity
    return config.similarity_of_different_tests


def is_same_text(left: Features, right: Features, found: Similarity, config: DeduplicationConfig) -> bool:
    """Return whether the words are equal and the tests do not contradict: a general statement fits many tests."""
    is_long = found.all_words >= config.shortest_statement
    most_disagreeing = found.tests.shared // _TESTS_PER_DISAGREEMENT if is_long else 0
    return left.text == right.text and found.tests.disagreeing <= most_disagreeing


def have_other_tests(left: Features, right: Features) -> bool:
    return _contradict(compare_tests(left, right))


def _contradict(tests: SharedTests) -> bool:
    """Return whether too many shared inputs have different outputs; a few may have several right answers."""
    return tests.disagreeing * _TESTS_PER_DISAGREEMENT > tests.shared


def has_same_tests(found: Similarity) -> bool:
    """Return whether the tests alone show a duplicate: all of the smaller set agree, and their outputs vary enough.

    Three assertions of equal code may hold for two problems (a few of MBPP do); code that asserts in loops is stronger.
    """
    is_distinctive = found.tests.different_outputs >= _DISTINCTIVE_OUTPUTS or found.tests.shared >= _DISTINCTIVE_TESTS
    is_distinctive |= found.tests.same_code and not 0 < found.tests.shared < _DISTINCTIVE_WITHOUT_WORDS
    return found.tests.relation is TestRelation.SAME and is_distinctive


def agree_enough(found: Similarity) -> bool:
    """Return whether agreeing tests show a duplicate without any words: equal code, or many different tests."""
    is_distinctive = (
        found.tests.shared >= _DISTINCTIVE_WITHOUT_WORDS and found.tests.different_outputs >= _DISTINCTIVE_OUTPUTS
    )
    return found.tests.same_code or is_distinctive or found.tests.shared >= _DISTINCTIVE_TESTS


def can_be_run_on_each_other(left: Features, right: Features, found: Similarity) -> bool:
    """Return whether running solutions could show a duplicate: tests of one shape, and none that contradict."""
    is_known = left.num_tests and right.num_tests
    return bool(is_known) and left.shape == right.shape and found.tests.relation is not TestRelation.CONTRADICTING
