"""Stages that look at one candidate at a time and run nothing: tests, length, dates, difficulty."""

from __future__ import annotations

import ast
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from autoclave.core import AnswerTests, CallTests, CheckTests, Problem, StdinTests
from autoclave.core.json import canonical_json
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.python_source import tree_of
from autoclave.problems.curation.stage import Dropped, Filter

Tokenize = Callable[[str], int]
"""The number of tokens of a text."""


def num_tests(problem: Problem) -> int:
    """How many different tests a problem has: cases, assertions of a check program, one answer. Of stored ones, 0."""
    tests = problem.tests
    if isinstance(tests, StdinTests | CallTests):
        return len({canonical_json([case]) for case in tests.cases})
    if isinstance(tests, CheckTests):
        return num_assertions(tests.source)
    return int(isinstance(tests, AnswerTests))


def num_assertions(source: str) -> int:
    """Statements of a check program that can fail it; one where it cannot be read, or asserts in loops of its own."""
    tree = tree_of(source)
    if tree is None:
        return 1
    return max(1, sum(isinstance(node, ast.Assert) for node in ast.walk(tree)))


def longest_input(problem: Problem) -> int:
    """Characters of the longest input of a test, 0 where tests are programs or answers."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return max(len(case.input) for case in tests.cases)
    if isinstance(tests, CallTests):
        return max(len(canonical_json(case.arguments)) for case in tests.cases)
    return 0


def enough_tests(minimum: int) -> Filter:
    """Problems with at least so many different tests."""
    return Filter("minimum_tests", {"minimum": minimum}, partial(_enough_tests, minimum))


def _enough_tests(minimum: int, candidate: Candidate) -> Candidate | Dropped:
    number = num_tests(candidate.problem)
    if number < minimum and not isinstance(candidate.problem.tests, AnswerTests):
        return Dropped.of(candidate, "few_tests", f"{number} different tests; at least {minimum} are wanted")
    return with_facts(candidate, tests=number, input_characters=longest_input(candidate.problem))


def short_prompt(limit: int, tokenizer: str, tokenize: Tokenize) -> Filter:
    """Problems whose statement and starter code have at most so many tokens of the tokenizer of that name."""
    return Filter(
        "prompt_length", {"limit": limit, "tokenizer": tokenizer}, partial(_short_prompt, limit, tokenizer, tokenize)
    )


def _short_prompt(limit: int, tokenizer: str, tokenize: Tokenize, candidate: Candidate) -> Candidate | Dropped:
    problem = candidate.problem
    number = tokenize("\n".join(text for text in (problem.statement, problem.starter_code) if text))
    if number > limit:
        return Dropped.of(candidate, "long_prompt", f"{number} tokens ({tokenizer}); at most {limit} are wanted")
    return with_facts(candidate, prompt_tokens=number)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which problems of a source are wanted: released on `first` or later, before `end`, of one of the difficulties.

    None, and no difficulties, are all. A problem without a date is in no window.
    """

    first: datetime.date | None = None
    end: datetime.date | None = None
    difficulties: tuple[str, ...] = ()

    def complaint(self, problem: Problem) -> tuple[str, str] | None:
        """Why a problem is not wanted, as a reason and a sentence; None if it is."""
        if self.difficulties and problem.difficulty not in self.difficulties:
            wanted = " or ".join(self.difficulties)
            return "other_difficulty", f"difficulty {problem.difficulty!r}; wanted: {wanted}"
        if self.first is None and self.end is None:
            return None
        released = problem.released
        if released is None:
            return "no_date", "its source has a window of dates, and it has no date"
        if (self.first and released < self.first) or (self.end and released >= self.end):
            return "outside_dates", f"released {released}; wanted: from {self.first} on, before {self.end}"
        return None


def selected(selections: Mapping[str, Selection]) -> Filter:
    """What is wanted of each source, by its name."""
    settings = {name: json.loads(canonical_json(one)) for name, one in sorted(selections.items())}
    return Filter("selection", settings, partial(_selected, selections))


def _selected(selections: Mapping[str, Selection], candidate: Candidate) -> Candidate | Dropped:
    selection = selections.get(candidate.origin.set, Selection())
    complaint = selection.complaint(candidate.problem)
    return candidate if complaint is None else Dropped.of(candidate, *complaint)


def fitting_difficulty(pass_rates: Mapping[str, float], digest: str, lowest: float, highest: float) -> Filter:
    """Problems that a model solves neither never nor always: pass rate within [lowest, highest], by id.

    Problems without a pass rate stay. `digest` is that of the file of pass rates.
    """
    settings = {"pass_rates": digest, "lowest": lowest, "highest": highest}
    return Filter("difficulty", settings, partial(_fitting_difficulty, pass_rates, lowest, highest))


def _fitting_difficulty(
    pass_rates: Mapping[str, float], lowest: float, highest: float, candidate: Candidate
) -> Candidate | Dropped:
    rate = pass_rates.get(candidate.problem.id)
    if rate is None:
        return candidate
    if not lowest <= rate <= highest:
        reason = "too_hard" if rate < lowest else "too_easy"
        return Dropped.of(candidate, reason, f"pass rate {rate:g}; wanted: {lowest:g} to {highest:g}")
    return with_facts(candidate, pass_rate=rate)


def with_facts(candidate: Candidate, **facts: float) -> Candidate:
    """The candidate with what was measured of it."""
    return replace(candidate, facts={**candidate.facts, **facts})
