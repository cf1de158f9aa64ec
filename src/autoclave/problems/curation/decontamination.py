"""Which training problems are too close to a problem of an evaluation set, by which rule, with what evidence.

The evaluation problems are in memory (some tens of kilobytes each); training problems are a stream, looked at one by
one. Every evaluation problem with a word in common is looked at: nothing is left to chance, and nothing runs.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autoclave.config.curation import DecontaminationConfig
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.deduplication import Name
from autoclave.problems.curation.identities import title_words
from autoclave.problems.curation.similarity import Likeness, TestRelation, WordFrequencies, likeness, tell_enough
from autoclave.problems.curation.statements import plain_text, plain_words
from autoclave.problems.curation.traits import Traits, traits_of


class ContaminationRule(StrEnum):
    """How a training problem was found to be too close."""

    IDENTITY = "identity"
    """It is the same problem of the same site, by its address or key."""
    TITLE = "title"
    """It has the same title."""
    EXACT = "exact"
    """The statements have the same words, numbers and operators."""
    NGRAMS = "ngrams"
    """It shares too many runs of words, or too long a one."""
    NEAR = "near"
    """Its statement is about the same, by its words."""
    TESTS = "tests"
    """It expects what the evaluation problem expects for the same inputs, or has its test code."""
    DATE = "date"
    """It was released outside of the window for training."""


@dataclass(frozen=True, slots=True)
class Contamination:
    """A training problem that is dropped, and its evidence.

    Attributes:
        dropped: the problem.
        evaluation: the problem that it is too close to; None for a date.
        rule: how that was found.
        matched: the name, title, words or day that decided.
        share: of the evaluation statement's n-grams, for `ngrams`; of the words in common, for `near` and `tests`.
        longest_run: words in a row, for `ngrams`.
        likeness: all numbers on the two, for `near` and `tests`.
    """

    dropped: Name
    evaluation: Name | None
    rule: ContaminationRule
    matched: str
    share: float = 1.0
    longest_run: int = 0
    likeness: Likeness | None = None


@dataclass(frozen=True, slots=True)
class _Evaluation:
    name: Name
    traits: Traits
    num_ngrams: int


_SHOWN = 200
_COMMON_NGRAM = 3
"""Problems of the evaluation sets that have an n-gram in common before it is taken for a manner of speaking."""


class Decontamination:
    """Looks training problems up among the problems of evaluation sets."""

    def __init__(self, evaluation: Iterable[Candidate], config: DecontaminationConfig) -> None:
        self._config = config
        self._problems: list[_Evaluation] = []
        self._frequencies = WordFrequencies()
        self._by_identity: dict[str, int] = {}
        self._by_title: dict[str, int] = {}
        self._by_text: dict[bytes, int] = {}
        self._by_ngram: dict[int, list[int]] = defaultdict(list)
        self._by_word: dict[int, list[int]] = defaultdict(list)
        self._by_input: dict[int, list[int]] = defaultdict(list)
        for candidate in evaluation:
            self._add(candidate)
        self._leave_out_common_ngrams()
        self._is_long = np.array([len(each.traits.topic) >= config.shortest_statement for each in self._problems], bool)
        self._weights = np.array(
            [max(1.0, self._frequencies.weights(each.traits.topic).sum()) for each in self._problems], float
        )

    def _add(self, candidate: Candidate) -> None:
        number = len(self._problems)
        traits = traits_of(candidate)
        self._problems.append(_Evaluation(Name.of(candidate), traits, 0))
        self._frequencies.add(traits.topic)
        for name in traits.names:
            self._by_identity.setdefault(name, number)
        if title := title_words(candidate.origin.title, self._config.shortest_title):
            self._by_title.setdefault(title, number)
        if traits.text:
            self._by_text.setdefault(traits.text, number)
        for ngram in sorted(set(self._ngrams(_words(candidate)))):
            self._by_ngram[ngram].append(number)
        for word in traits.topic.tolist():
            self._by_word[word].append(number)
        for given in _test_keys(traits):
            self._by_input[given].append(number)

    def _leave_out_common_ngrams(self) -> None:
        """Only what few problems say counts, and their shares are of that."""
        self._by_ngram = {key: numbers for key, numbers in self._by_ngram.items() if len(numbers) < _COMMON_NGRAM}
        counts = np.bincount([number for numbers in self._by_ngram.values() for number in numbers] or [0])
        counts = np.pad(counts, (0, max(0, len(self._problems) - len(counts))))
        self._problems = [
            _Evaluation(each.name, each.traits, int(count)) for each, count in zip(self._problems, counts, strict=False)
        ]

    def _ngrams(self, words: list[str]) -> list[int]:
        size = self._config.ngram_words
        return [hash_of_words(words[at : at + size]) for at in range(len(words) - size + 1)]

    def find(self, candidate: Candidate) -> Contamination | None:
        """Why a problem must not be trained on; None if nothing speaks against it."""
        traits = traits_of(candidate)
        rules: Mapping[ContaminationRule, Callable[[Candidate, Traits], Contamination | None]] = {
            ContaminationRule.IDENTITY: self._by_name,
            ContaminationRule.TITLE: self._by_same_title,
            ContaminationRule.EXACT: self._by_same_text,
            ContaminationRule.NGRAMS: self._by_ngrams,
            ContaminationRule.NEAR: self._by_words,
            ContaminationRule.TESTS: self._by_tests,
            ContaminationRule.DATE: self._by_date,
        }
        return next(
            (hit for rule in self._config.rules if (hit := rules[ContaminationRule(rule)](candidate, traits))), None
        )

    def _by_name(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        for name in sorted(traits.names):
            if (number := self._by_identity.get(name)) is not None:
                return self._hit(candidate, number, ContaminationRule.IDENTITY, name)
        return None

    def _by_same_title(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        title = title_words(candidate.origin.title, self._config.shortest_title)
        number = self._by_title.get(title)
        return None if number is None else self._hit(candidate, number, ContaminationRule.TITLE, title)

    def _by_same_text(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        number = self._by_text.get(traits.text)
        return (
            None if number is None else self._hit(candidate, number, ContaminationRule.EXACT, _shown(_words(candidate)))
        )

    def _by_ngrams(self, candidate: Candidate, traits: Traits) -> Contamination | None:
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

    def _overlap(self, candidate: Candidate, words: list[str], number: int, places: list[int]) -> Contamination | None:
        size = self._config.ngram_words
        different = len(set(self._ngrams_at(words, places)))
        share = different / self._problems[number].num_ngrams
        start, length = _longest_run(places)
        longest = length + size - 1
        if longest < self._config.longest_run and (share < self._config.ngram_share or different < 2):
            return None
        matched = _shown(words[start : start + longest])
        return Contamination(
            Name.of(candidate), self._problems[number].name, ContaminationRule.NGRAMS, matched, share, longest
        )

    def _ngrams_at(self, words: list[str], places: list[int]) -> list[int]:
        size = self._config.ngram_words
        return [hash_of_words(words[at : at + size]) for at in places]

    def _by_words(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        """The most similar evaluation problem, if it is too similar and no test says that it is another."""
        near = [(number, self._likeness(traits, number)) for number in self._alike(traits).tolist()]
        near = [pair for pair in near if pair[1].tests is not TestRelation.CONTRADICTING]
        return self._most_alike(candidate, near, ContaminationRule.NEAR)

    def _alike(self, traits: Traits) -> NDArray[np.intp]:
        """Numbers of the evaluation problems with too many words in common: all of them at once."""
        if len(traits.topic) < self._config.shortest_statement:
            return np.empty(0, dtype=np.intp)
        weights = self._frequencies.weights(traits.topic)
        both = np.zeros(len(self._problems))
        for word, weight in zip(traits.topic.tolist(), weights.tolist(), strict=True):
            both[self._by_word.get(word, [])] += weight
        similarity = both / (weights.sum() + self._weights - both)
        containment = both / self._weights
        is_within = (containment >= self._config.containment) & (similarity >= self._config.similarity / 2)
        return np.flatnonzero(self._is_long & (is_within | (similarity >= self._config.similarity)))

    def _by_tests(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        numbers = sorted({number for given in _test_keys(traits) for number in self._by_input.get(given, ())})
        near = [(number, self._likeness(traits, number)) for number in numbers]
        near = [pair for pair in near if self._has_too_many_tests(pair[1])]
        return self._most_alike(candidate, near, ContaminationRule.TESTS)

    def _has_too_many_tests(self, found: Likeness) -> bool:
        """Whether half of the fewer tests are in both, more than one, and words are too, or the tests need no words."""
        is_same = found.tests in (TestRelation.SAME, TestRelation.AGREEING) and found.coverage >= 0.5
        is_worded = found.shared_tests > 1 and found.similarity >= self._config.similarity_of_same_tests
        return is_same and (is_worded or tell_enough(found))

    def _likeness(self, traits: Traits, number: int) -> Likeness:
        return likeness(traits, self._problems[number].traits, self._frequencies)

    def _most_alike(
        self, candidate: Candidate, near: list[tuple[int, Likeness]], rule: ContaminationRule
    ) -> Contamination | None:
        if not near:
            return None
        number, found = max(near, key=lambda pair: (pair[1].similarity, -pair[0]))
        matched = f"{found.similarity:.2f} of the words, {found.shared_tests} inputs"
        return Contamination(
            Name.of(candidate), self._problems[number].name, rule, matched, found.similarity, likeness=found
        )

    def _by_date(self, candidate: Candidate, traits: Traits) -> Contamination | None:
        released, config = candidate.problem.released, self._config
        if released is None or _is_within(released, config.released_from, config.released_before):
            return None
        return Contamination(Name.of(candidate), None, ContaminationRule.DATE, released.isoformat())

    def _hit(self, candidate: Candidate, number: int, rule: ContaminationRule, matched: str) -> Contamination:
        return Contamination(Name.of(candidate), self._problems[number].name, rule, matched)


def _test_keys(traits: Traits) -> list[int]:
    return [*traits.inputs.tolist(), *([traits.code] if traits.code else [])]


def hash_of_words(words: list[str]) -> int:
    """A number of some words in a row, the same within one process."""
    return hash(tuple(words))


def _words(candidate: Candidate) -> list[str]:
    return plain_words(plain_text(candidate.problem.statement))


def _shown(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _longest_run(places: list[int]) -> tuple[int, int]:
    """Start and length of the longest run of numbers one after the other."""
    best, start, length = (places[0], 1), places[0], 1
    for before, place in pairwise(places):
        start, length = (start, length + 1) if place == before + 1 else (place, 1)
        best = max(best, (start, length), key=lambda run: run[1])
    return best


def _is_within(day: datetime.date, start: datetime.date | None, end: datetime.date | None) -> bool:
    return (start is None or day >= start) and (end is None or day < end)
