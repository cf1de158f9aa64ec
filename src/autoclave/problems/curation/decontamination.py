"""Find training problems that are too close to a problem of an evaluation set, with the rule and the evidence.

The evaluation problems are in memory (some tens of kilobytes each); training problems are a stream. Each is compared
with every evaluation problem with a word in common: nothing is sampled, and nothing runs.
"""

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autoclave.config.curation import DecontaminationConfig
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.deduplication import CandidateKey
from autoclave.problems.curation.features import Features, features_of
from autoclave.problems.curation.identities import title_words
from autoclave.problems.curation.similarity import (
    Similarity,
    TestRelation,
    WordFrequencies,
    agree_enough,
    measure_similarity,
)
from autoclave.problems.curation.statements import plain_text, plain_words


class ContaminationRule(StrEnum):
    """Rule by which a training problem was found to be too close."""

    IDENTITY = "identity"
    """It is the same problem of the same site, by its address or key."""
    TITLE = "title"
    """It has the same title."""
    EXACT = "exact"
    """The statements have the same words, numbers and operators."""
    NGRAMS = "ngrams"
    """It shares too many runs of words, or too long a one."""
    NEAR = "near"
    """Its statement has similar words."""
    TESTS = "tests"
    """It expects the same outputs for the same inputs, or has the same test code."""
    DATE = "date"
    """It was released outside the window for training."""


@dataclass(frozen=True, slots=True)
class Contamination:
    """A training problem that is dropped, and its evidence.

    Attributes:
        dropped: the problem.
        evaluation: the problem that it is too close to; None for a date.
        rule: the rule that matched.
        matched: the name, title, words or day that matched.
        share: of the evaluation statement's n-grams, for `ngrams`; of the words in common, for `near` and `tests`.
        longest_run: words in a row, for `ngrams`.
    """

    dropped: CandidateKey
    evaluation: CandidateKey | None
    rule: ContaminationRule
    matched: str
    share: float = 1.0
    longest_run: int = 0


_SHOWN = 200
_COMMON_NGRAM = 3
"""Number of evaluation problems from which an n-gram is common, and does not count."""


class Decontamination:
    """Index of the problems of evaluation sets, to look training problems up."""

    def __init__(self, evaluation: Iterable[ProblemCandidate], config: DecontaminationConfig) -> None:
        self._config = config
        self._keys: list[CandidateKey] = []
        self._features: list[Features] = []
        self._frequencies = WordFrequencies()
        self._by_identity: dict[str, int] = {}
        self._by_title: dict[str, int] = {}
        self._by_text: dict[bytes, int] = {}
        self._by_ngram: dict[int, list[int]] = {}
        self._by_word: dict[int, list[int]] = defaultdict(list)
        self._by_input: dict[int, list[int]] = defaultdict(list)
        for candidate in evaluation:
            self._add(candidate)
        self._by_ngram = {key: numbers for key, numbers in self._by_ngram.items() if len(numbers) < _COMMON_NGRAM}
        self._num_ngrams = Counter(number for numbers in self._by_ngram.values() for number in numbers)
        topics = [features.topic for features in self._features]
        self._is_long = np.array([len(topic) >= config.shortest_statement for topic in topics], bool)
        self._weights = np.array([max(1.0, self._frequencies.weights(topic).sum()) for topic in topics], float)

    def _add(self, candidate: ProblemCandidate) -> None:
        number = len(self._keys)
        features = features_of(candidate)
        self._keys.append(CandidateKey.of(candidate))
        self._features.append(features)
        self._frequencies.add(features.topic)
        for name in features.names:
            self._by_identity.setdefault(name, number)
        if title := title_words(candidate.origin.title, self._config.shortest_title):
            self._by_title.setdefault(title, number)
        if features.text:
            self._by_text.setdefault(features.text, number)
        for ngram in sorted(set(self._ngrams(_words(candidate)))):
            self._by_ngram.setdefault(ngram, []).append(number)
        for word in features.topic.tolist():
            self._by_word[word].append(number)
        for given in _test_keys(features):
            self._by_input[given].append(number)

    def _ngrams(self, words: list[str]) -> list[int]:
        size = self._config.ngram_words
        return [hash_of_words(words[at : at + size]) for at in range(len(words) - size + 1)]

    def find(self, candidate: ProblemCandidate) -> Contamination | None:
        """Return why a problem must not be trained on; None if no rule matches."""
        features = features_of(candidate)
        rules: Mapping[ContaminationRule, Callable[[ProblemCandidate, Features], Contamination | None]] = {
            ContaminationRule.IDENTITY: self._by_name,
            ContaminationRule.TITLE: self._by_same_title,
            ContaminationRule.EXACT: self._by_same_text,
            ContaminationRule.NGRAMS: self._by_ngrams,
            ContaminationRule.NEAR: self._by_words,
            ContaminationRule.TESTS: self._by_tests,
            ContaminationRule.DATE: self._by_date,
        }
        return next(
            (hit for rule in self._config.rules if (hit := rules[ContaminationRule(rule)](candidate, features))), None
        )

    def _by_name(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        for name in sorted(features.names):
            if (number := self._by_identity.get(name)) is not None:
                return self._hit(candidate, number, ContaminationRule.IDENTITY, name)
        return None

    def _by_same_title(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        title = title_words(candidate.origin.title, self._config.shortest_title)
        number = self._by_title.get(title)
        return None if number is None else self._hit(candidate, number, ContaminationRule.TITLE, title)

    def _by_same_text(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        number, text = self._by_text.get(features.text), _shown(_words(candidate))
        return None if number is None else self._hit(candidate, number, ContaminationRule.EXACT, text)

    def _by_ngrams(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        words = _words(candidate)
        found: dict[int, list[int]] = defaultdict(list)
        for place, ngram in enumerate(self._ngrams(words)):
            for number in self._by_ngram.get(ngram, ()):
                found[number].append(place)
        best: Contamination | None = None
        for number, places in sorted(found.items()):
            hit = self._overlap(candidate, words, number, places)
            if hit and (best is None or hit.share > best.share):
                best = hit
        return best

    def _overlap(
        self, candidate: ProblemCandidate, words: list[str], number: int, places: list[int]
    ) -> Contamination | None:
        size = self._config.ngram_words
        different = len({hash_of_words(words[at : at + size]) for at in places})
        share = different / self._num_ngrams[number]
        start, length = _longest_run(places)
        longest = length + size - 1
        if longest < self._config.longest_run and (share < self._config.ngram_share or different < 2):
            return None
        matched = _shown(words[start : start + longest])
        return Contamination(
            CandidateKey.of(candidate), self._keys[number], ContaminationRule.NGRAMS, matched, share, longest
        )

    def _by_words(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        """Return the most similar evaluation problem whose tests do not contradict."""
        near = [(number, self._similarity(features, number)) for number in self._similar_numbers(features).tolist()]
        near = [pair for pair in near if pair[1].tests.relation is not TestRelation.CONTRADICTING]
        return self._most_similar(candidate, near, ContaminationRule.NEAR)

    def _similar_numbers(self, features: Features) -> NDArray[np.intp]:
        """Return the numbers of the evaluation problems with too many words in common."""
        if len(features.topic) < self._config.shortest_statement:
            return np.empty(0, dtype=np.intp)
        weights = self._frequencies.weights(features.topic)
        both = np.zeros(len(self._keys))
        for word, weight in zip(features.topic.tolist(), weights.tolist(), strict=True):
            both[self._by_word.get(word, [])] += weight
        similarity = both / (weights.sum() + self._weights - both)
        containment = both / self._weights
        is_within = (containment >= self._config.containment) & (similarity >= self._config.similarity / 2)
        return np.flatnonzero(self._is_long & (is_within | (similarity >= self._config.similarity)))

    def _by_tests(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        numbers = sorted({number for given in _test_keys(features) for number in self._by_input.get(given, ())})
        near = [(number, self._similarity(features, number)) for number in numbers]
        near = [pair for pair in near if self._has_too_many_tests(pair[1])]
        return self._most_similar(candidate, near, ContaminationRule.TESTS)

    def _has_too_many_tests(self, found: Similarity) -> bool:
        """Return whether half of the smaller set of tests is shared, with enough words, or enough tests alone."""
        is_same = found.tests.relation in (TestRelation.SAME, TestRelation.AGREEING) and found.tests.coverage >= 0.5
        is_worded = found.tests.shared > 1 and found.similarity >= self._config.similarity_of_same_tests
        return is_same and (is_worded or agree_enough(found))

    def _similarity(self, features: Features, number: int) -> Similarity:
        return measure_similarity(features, self._features[number], self._frequencies)

    def _most_similar(
        self, candidate: ProblemCandidate, near: list[tuple[int, Similarity]], rule: ContaminationRule
    ) -> Contamination | None:
        if not near:
            return None
        number, found = max(near, key=lambda pair: (pair[1].similarity, -pair[0]))
        matched = f"{found.similarity:.2f} of the words, {found.tests.shared} inputs"
        return Contamination(CandidateKey.of(candidate), self._keys[number], rule, matched, found.similarity)

    def _by_date(self, candidate: ProblemCandidate, features: Features) -> Contamination | None:
        released, config = candidate.problem.released, self._config
        if released is None or _is_within(released, config.released_from, config.released_before):
            return None
        return Contamination(CandidateKey.of(candidate), None, ContaminationRule.DATE, released.isoformat())

    def _hit(self, candidate: ProblemCandidate, number: int, rule: ContaminationRule, matched: str) -> Contamination:
        return Contamination(CandidateKey.of(candidate), self._keys[number], rule, matched)


def _test_keys(features: Features) -> list[int]:
    return [*features.inputs.tolist(), *([features.code] if features.code else [])]


def hash_of_words(words: list[str]) -> int:
    """Return a hash of consecutive words, stable within one process."""
    return hash(tuple(words))


def _words(candidate: ProblemCandidate) -> list[str]:
    return plain_words(plain_text(candidate.problem.statement))


def _shown(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _longest_run(places: list[int]) -> tuple[int, int]:
    """Return start and length of the longest run of consecutive numbers."""
    best, start, length = (places[0], 1), places[0], 1
    for before, place in pairwise(places):
        start, length = (start, length + 1) if place == before + 1 else (place, 1)
        best = max(best, (start, length), key=lambda run: run[1])
    return best


def _is_within(day: datetime.date, start: datetime.date | None, end: datetime.date | None) -> bool:
    return (start is None or day >= start) and (end is None or day < end)
