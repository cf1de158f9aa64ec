"""Stages that decide on one candidate at a time without running programs: tests, length, dates, difficulty."""

import ast
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autoclave.core import AnswerTests, CallTests, CheckTests, Problem, StdinTests
from autoclave.core.json import canonical_json
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.python_source import tree_of
from autoclave.problems.curation.stage import Dropped, Filter

Tokenize = Callable[[str], int]
"""Returns the number of tokens of a text."""


def num_tests(problem: Problem) -> int:
    """Return the number of different tests: cases, assertions of a check program, one answer; 0 for stored tests."""
    tests = problem.tests
    if isinstance(tests, StdinTests | CallTests):
        return len({canonical_json([case]) for case in tests.cases})
    if isinstance(tests, CheckTests):
        return num_assertions(tests.source)
    return int(isinstance(tests, AnswerTests))


def num_assertions(source: str) -> int:
    """Return the number of assertions of a check program, at least 1, also for code that Python cannot parse."""
    tree = tree_of(source)
    if tree is None:
        return 1
    return max(1, sum(isinstance(node, ast.Assert) for node in ast.walk(tree)))


def longest_input(problem: Problem) -> int:
    """Return the characters of the longest input of a test, 0 for tests that are programs or answers."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return max(len(case.input) for case in tests.cases)
    if isinstance(tests, CallTests):
        return max(len(canonical_json(case.arguments)) for case in tests.cases)
    return 0


def enough_tests(minimum: int) -> Filter:
    """Return the filter of problems with at least `minimum` different tests."""

    def decide(candidate: ProblemCandidate) -> ProblemCandidate | Dropped:
        number = num_tests(candidate.problem)
        if number < minimum and not isinstance(candidate.problem.tests, AnswerTests):
            return Dropped.of(candidate, "few_tests", f"{number} different tests: must be at least {minimum}")
        return with_facts(candidate, tests=number, input_characters=longest_input(candidate.problem))

    return Filter("minimum_tests", {"minimum": minimum}, decide)


def short_prompt(limit: int, tokenizer: str, tokenize: Tokenize) -> Filter:
    """Return the filter of problems whose statement and starter code have at most `limit` tokens."""

    def decide(candidate: ProblemCandidate) -> ProblemCandidate | Dropped:
        problem = candidate.problem
        number = tokenize("\n".join(text for text in (problem.statement, problem.starter_code) if text))
        if number > limit:
            return Dropped.of(candidate, "long_prompt", f"{number} tokens ({tokenizer}): must be at most {limit}")
        return with_facts(candidate, prompt_tokens=number)

    return Filter("prompt_length", {"limit": limit, "tokenizer": tokenizer}, decide)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of problems of a source: released on `first` or later, before `end`, of one of the difficulties.

    None, and an empty tuple, select all. A problem without a date is outside of every window.
    """

    first: datetime.date | None = None
    end: datetime.date | None = None
    difficulties: tuple[str, ...] = ()

    def reason_to_skip(self, problem: Problem) -> tuple[str, str] | None:
        """Return why a problem is left out, as a reason and a sentence; None if it is selected."""
        if self.difficulties and problem.difficulty not in self.difficulties:
            selected = " or ".join(self.difficulties)
            return "other_difficulty", f"difficulty {problem.difficulty!r}: must be {selected}"
        if self.first is None and self.end is None:
            return None
        released = problem.released
        if released is None:
            return "no_date", "its source has a window of dates, and its date is missing"
        if (self.first and released < self.first) or (self.end and released >= self.end):
            return "outside_dates", f"released {released}: must be from {self.first}, before {self.end}"
        return None


def selected(selections: Mapping[str, Selection]) -> Filter:
    """Return the filter that applies the selection of each source, by the name of the source."""

    def decide(candidate: ProblemCandidate) -> ProblemCandidate | Dropped:
        reason = selections.get(candidate.origin.set, Selection()).reason_to_skip(candidate.problem)
        return candidate if reason is None else Dropped.of(candidate, *reason)

    settings = {name: json.loads(canonical_json(one)) for name, one in sorted(selections.items())}
    return Filter("selection", settings, decide)


def fitting_difficulty(pass_rates: Mapping[str, float], digest: str, lowest: float, highest: float) -> Filter:
    """Return the filter of problems whose pass rate, by id, is within [lowest, highest].

    Problems without a pass rate stay. `digest` is that of the file of pass rates.
    """

    def decide(candidate: ProblemCandidate) -> ProblemCandidate | Dropped:
        rate = pass_rates.get(candidate.problem.id)
        if rate is None:
            return candidate
        if not lowest <= rate <= highest:
            reason = "too_hard" if rate < lowest else "too_easy"
            return Dropped.of(candidate, reason, f"pass rate {rate:g}: must be {lowest:g} to {highest:g}")
        return with_facts(candidate, pass_rate=rate)

    return Filter("difficulty", {"pass_rates": digest, "lowest": lowest, "highest": highest}, decide)


def with_facts(candidate: ProblemCandidate, **facts: float) -> ProblemCandidate:
    return replace(candidate, facts={**candidate.facts, **facts})
