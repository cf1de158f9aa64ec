"""How alike two problems are, in numbers, and what follows. Pure functions of their traits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autoclave.config.curation import DeduplicationConfig
from autoclave.problems.curation.traits import CASES_LIMIT, Traits, WordHashes

_SLOTS = 1 << 21
_PRIOR_STATEMENTS = 1000
_COMMON_SHARE = 0.15
_FEWEST_RARE = 3
_FEWEST_SAMPLED = 4


class WordFrequencies:
    """In how many statements each word occurs, in 8 MiB whatever their number; rare words count more in comparisons.

    Words that share a slot are counted together, which makes them count a little less.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_SLOTS, dtype=np.uint32)
        self.num_statements = 0

    def add(self, topic: WordHashes) -> None:
        """Count the words of one statement."""
        self.num_statements += 1
        np.add.at(self._counts, topic % _SLOTS, 1)

    def weights(self, words: WordHashes) -> NDArray[np.float64]:
        """How much each word counts. As if a thousand statements were known before, so that few ones behave alike."""
        everything = self.num_statements + _PRIOR_STATEMENTS
        return np.log1p(everything / (self._counts[words % _SLOTS] + 1.0))

    def rare(self, words: WordHashes) -> WordHashes:
        """`words` without those of many statements, unless nearly all are."""
        limit = max(_PRIOR_STATEMENTS * _COMMON_SHARE, self.num_statements * _COMMON_SHARE)
        kept = words[self._counts[words % _SLOTS] <= limit]
        return kept if len(kept) >= _FEWEST_RARE else words


class TestRelation(StrEnum):
    """What the tests of two problems say of them."""

    __test__ = False  # not a test class of pytest
    SAME = "same"
    """All inputs of the problem with fewer tests are in both, with the same outputs; or the test code is the same."""
    AGREEING = "agreeing"
    """An input is in both, and the outputs are the same wherever one is."""
    CONTRADICTING = "contradicting"
    """An input is in both with different outputs."""
    DISJOINT = "disjoint"
    """No input is in both, though programs of one could run on those of the other."""
    UNKNOWN = "unknown"
    """One of them has no tests that can be compared, or they are of different shapes."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """The evidence on two problems.

    Attributes:
        similarity: share of their words of content that is in both, rare ones counting more (weighted Jaccard).
        containment: the same as a share of the one that has less of them.
        wording: share of all their words, numbers and operators that is in both (Jaccard).
        tests: what their tests say.
        shared_tests: how many inputs are in both.
        disagreeing_tests: for how many of these the outputs differ.
        different_outputs: how many different outputs the agreeing ones have.
        coverage: share of the inputs of the problem with fewer tests that is in both.
        same_code: whether both have the same test code.
        topic_words: different words of content in the one that has fewer.
        all_words: different words, numbers and operators in the one that has fewer.
    """

    similarity: float
    containment: float
    wording: float
    tests: TestRelation
    shared_tests: int
    disagreeing_tests: int
    different_outputs: int
    coverage: float
    same_code: bool
    topic_words: int
    all_words: int


def likeness(left: Traits, right: Traits, frequencies: WordFrequencies) -> Likeness:
    """How alike two problems are. Symmetric."""
    both, lesser, either = _weights(left.topic, right.topic, frequencies)
    tests = compare_tests(left, right)
    return Likeness(
        similarity=both / either if either else 0.0,
        containment=both / lesser if lesser else 0.0,
        wording=_jaccard(left.words, right.words),
        tests=tests.relation,
        shared_tests=tests.shared,
        disagreeing_tests=tests.disagreeing,
        different_outputs=tests.different_outputs,
        coverage=tests.coverage,
        same_code=tests.same_code,
        topic_words=min(len(left.topic), len(right.topic)),
        all_words=min(len(left.words), len(right.words)),
    )


def _weights(left: WordHashes, right: WordHashes, frequencies: WordFrequencies) -> tuple[float, float, float]:
    """What the words weigh: those in both, those of the one that has less, those in either."""
    both = float(frequencies.weights(np.intersect1d(left, right, assume_unique=True)).sum())
    of_left, of_right = float(frequencies.weights(left).sum()), float(frequencies.weights(right).sum())
    return both, min(of_left, of_right), of_left + of_right - both


def _jaccard(left: WordHashes, right: WordHashes) -> float:
    both = len(np.intersect1d(left, right, assume_unique=True))
    either = len(left) + len(right) - both
    return both / either if either else 0.0


@dataclass(frozen=True, slots=True)
class SharedTests:
    """The inputs that two problems have in common; the fields are those of `Likeness`."""

    relation: TestRelation
    shared: int = 0
    disagreeing: int = 0
    different_outputs: int = 0
    coverage: float = 0.0
    same_code: bool = False


def compare_tests(left: Traits, right: Traits) -> SharedTests:
    """What the tests of two problems say."""
    _, at_left, at_right = np.intersect1d(left.inputs, right.inputs, assume_unique=True, return_indices=True)
    largest = min(_largest_kept(left), _largest_kept(right))
    fewer = min(int((traits.inputs <= largest).sum()) for traits in (left, right))
    same_code = 0 != left.code == right.code
    if same_code and not len(at_left):
        return SharedTests(TestRelation.SAME, coverage=1.0, same_code=True)
    if not len(at_left):
        is_comparable = fewer and left.shape == right.shape
        return SharedTests(TestRelation.DISJOINT if is_comparable else TestRelation.UNKNOWN)
    outputs = left.outputs[at_left]
    agreeing = outputs == right.outputs[at_right]
    if fewer < _FEWEST_SAMPLED:  # too few to stand for tests that were not kept
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


def _largest_kept(traits: Traits) -> np.uint64:
    """Up to where all inputs of the problem are in its traits."""
    return traits.inputs[-1] if len(traits.inputs) == CASES_LIMIT else np.uint64(2**64 - 1)


# --- Decisions -----------------------------------------------------------------------------------------------------

_SAME_WORDING = 0.97
_SAME_SHORT_WORDING = 0.87
_TESTS_PER_DISAGREEMENT = 4
_TELLING_OUTPUTS = 3
_TELLING_TESTS = 10
_TELLING_WITHOUT_WORDS = 5


def is_near(left: Traits, right: Traits, found: Likeness, config: DeduplicationConfig) -> bool:
    """Whether one statement is a copy of the other, reworded, renumbered or reformatted.

    Where inputs have two outputs the problems differ, whatever their words; a few may have several right answers.
    Versions of a problem are two, and two problems of one site are the same only where all their words or tests are.
    Tests that all agree make up for words, and more so the more they tell.
    """
    if _contradict(found.disagreeing_tests, found.shared_tests):
        return False
    if left.version and right.version and left.version != right.version:
        return False
    if found.all_words < config.shortest_statement and not has_same_tests(found):
        return _is_same_short_text(found)
    if left.version or right.version or _are_named_apart(left, right):
        return found.wording >= _SAME_WORDING or found.tests is TestRelation.SAME
    needed = _needed(left, right, found, config)
    is_within = found.containment >= config.containment and needed <= config.similarity
    return found.similarity >= (needed / 2 if is_within else needed)


def _are_named_apart(left: Traits, right: Traits) -> bool:
    """Whether one site has both, under two names."""
    sites = {name.partition("/")[0] for name in left.names} & {name.partition("/")[0] for name in right.names}
    return bool(sites) and not left.names & right.names


def _is_same_short_text(found: Likeness) -> bool:
    """A few words are shared by many problems, in any order: nearly all have to be, and some tests."""
    is_supported = found.tests in (TestRelation.SAME, TestRelation.AGREEING) and found.shared_tests > 1
    return is_supported and found.wording >= _SAME_SHORT_WORDING and found.similarity >= _SAME_WORDING


def _needed(left: Traits, right: Traits, found: Likeness, config: DeduplicationConfig) -> float:
    """How many words in common two problems need, given what their tests say."""
    if found.tests is TestRelation.SAME or left.names & right.names:
        return config.similarity_of_same_tests
    if found.tests is TestRelation.AGREEING:
        return config.similarity_of_same_tests if found.coverage >= 0.5 else config.similarity
    has_topic = found.topic_words >= config.fewest_topic_words or found.wording >= config.similarity
    if found.tests is TestRelation.UNKNOWN and has_topic:
        return config.similarity
    return config.similarity_of_different_tests


def is_same_text(left: Traits, right: Traits, found: Likeness, config: DeduplicationConfig) -> bool:
    """Whether the words are the same, and no tests against it: under a general statement they are what is asked."""
    is_long = found.all_words >= config.shortest_statement
    most_disagreeing = found.shared_tests // _TESTS_PER_DISAGREEMENT if is_long else 0
    return left.text == right.text and found.disagreeing_tests <= most_disagreeing


def have_other_tests(left: Traits, right: Traits) -> bool:
    """Whether tests say that two problems are two."""
    tests = compare_tests(left, right)
    return _contradict(tests.disagreeing, tests.shared)


def _contradict(disagreeing: int, shared: int) -> bool:
    """Whether inputs have two outputs; a few may have several right answers."""
    return disagreeing * _TESTS_PER_DISAGREEMENT > shared


def has_same_tests(found: Likeness) -> bool:
    """Whether the tests alone say that two problems are one: all of the fewer ones agree, and their outputs tell.

    Three assertions of one code may hold for two problems (a few of MBPP do); code that asserts in loops tells more.
    """
    is_telling = found.different_outputs >= _TELLING_OUTPUTS or found.shared_tests >= _TELLING_TESTS
    is_telling |= found.same_code and not 0 < found.shared_tests < _TELLING_WITHOUT_WORDS
    return found.tests is TestRelation.SAME and is_telling


def tell_enough(found: Likeness) -> bool:
    """Whether agreeing tests say without any words what a problem asks: the same code, or many that differ."""
    is_telling = found.shared_tests >= _TELLING_WITHOUT_WORDS and found.different_outputs >= _TELLING_OUTPUTS
    return found.same_code or is_telling or found.shared_tests >= _TELLING_TESTS


def can_be_run_on_each_other(left: Traits, right: Traits, found: Likeness) -> bool:
    """Whether solutions of two problems could tell that they are one: tests of one shape, and none against it."""
    is_known = left.num_tests and right.num_tests
    return bool(is_known) and left.shape == right.shape and found.tests is not TestRelation.CONTRADICTING
