"""Stages that run the official solutions: do they pass, do they agree, do they pass each time.

Sources of the rules: every solution must pass every test (DeepCoder, data section); solutions that fail are dropped,
and problems that are left with none (PPO on Ray, data section).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from autoclave.core import AnswerTests, Status, Verdict
from autoclave.judge.environments import recovery_of
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.filters import with_facts
from autoclave.problems.curation.programs import CandidatePrograms, JudgedCandidate, repetition, solutions_of
from autoclave.problems.curation.stage import Dropped

Rule = Literal["all", "any"]
SECONDS = "solution_seconds"
"""The fact how long the slowest test takes a solution, CPU seconds; known of problems that were verified."""
_MISSING = re.compile(r"ModuleNotFoundError: (\w+)")
_SEVERAL_ANSWERS = (
    "any of them",
    "any one of them",
    "any valid",
    "any correct",
    "any such",
    "any order",
    "any possible",
    "any optimal",
    "any answer",
    "any solution",
    "multiple answers",
    "multiple solutions",
    "several answers",
    "several solutions",
    "several possible",
    "more than one answer",
    "more than one solution",
    "more than one possible",
    "multiple possible",
    "multiple valid",
    "multiple correct",
    "multiple optimal",
    "if there are many",
    "print any",
    "output any",
    "return any",
    "find any",
)
"""What statements say whose answers need a judge of their own."""


class Agreement:
    """Problems whose official solutions agree on what is right, as far as they end normally.

    Two ways to be dropped as one that needs a judge of its own: some solutions pass a test and others print something
    else there, and the statement says that several answers are right, or several solutions are wrong in that way and
    they are at least `share` of all.
    """

    name = "special_judge"
    notes: Sequence[str] = ()

    def __init__(self, programs: CandidatePrograms, share: float) -> None:
        self._programs = programs
        self._share = share

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"judge": self._programs.judge_identity, "share": self._share}

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        for judged in _judged_solutions(self._programs, candidates):
            yield self._decided(judged) if isinstance(judged, JudgedCandidate) else judged

    def _decided(self, judged: JudgedCandidate) -> Candidate | Dropped:
        disputed = disputed_tests(judged.verdicts)
        if not disputed:
            return judged.candidate
        wrong = sum(verdict.status is Status.WRONG_ANSWER for verdict in judged.verdicts)
        statement = " ".join(judged.candidate.problem.statement.lower().split())
        cue = next((words for words in _SEVERAL_ANSWERS if words in statement), None)
        if cue is None and (wrong < 2 or wrong < self._share * len(judged.verdicts)):
            return judged.candidate
        why = f"the statement says {cue!r}" if cue else "too many for mistakes"
        detail = (
            f"{wrong} of {len(judged.verdicts)} solutions print something else than expected on tests that others "
            f"pass (test {disputed[0]}); {why}"
        )
        return Dropped.of(judged.candidate, "special_judge", detail)


def disputed_tests(verdicts: Sequence[Verdict]) -> list[int]:
    """Tests that some programs pass and others answer wrongly, as far as they came before their first failure."""
    passed, wrong = set[int](), set[int]()
    for verdict in verdicts:
        for test in verdict.tests:
            if test.status is Status.ACCEPTED:
                passed.add(test.index)
            elif test.status is Status.WRONG_ANSWER:
                wrong.add(test.index)
    return sorted(passed & wrong)


class Verification:
    """Problems whose official solutions pass: all of them, or with the rule `any` those that are kept, at least one.

    Sources in `unsolved` may have problems without solutions. Where no program runs, nothing is verified.
    """

    name = "verification"

    def __init__(self, programs: CandidatePrograms, rule: Rule, unsolved: frozenset[str]) -> None:
        self._programs = programs
        self._missing = Counter[str]()
        self._rule: Rule = rule
        self._unsolved = unsolved

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"judge": self._programs.judge_identity, "rule": self._rule, "unsolved": sorted(self._unsolved)}

    @property
    def notes(self) -> Sequence[str]:
        """How many problems each package would recover that solutions miss."""
        return [
            f"{count} problems were dropped because solutions import {package}. Fix: sources[].{recovery_of(package)}"
            for package, count in self._missing.most_common()
        ]

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        self._missing.clear()
        for judged in _judged_solutions(self._programs, candidates):
            yield self._decided(judged) if isinstance(judged, JudgedCandidate) else judged

    def _decided(self, judged: JudgedCandidate) -> Candidate | Dropped:
        candidate = judged.candidate
        if isinstance(candidate.problem.tests, AnswerTests):
            return candidate
        solutions = solutions_of(candidate.problem)
        if not solutions:
            if candidate.origin.set in self._unsolved:
                return with_facts(candidate, solutions=0)
            return Dropped.of(candidate, "no_solutions", "nothing shows that its tests are right")
        passed = [
            program.source
            for program, verdict in zip(solutions, judged.verdicts, strict=True)
            if verdict.status is Status.ACCEPTED
        ]
        num_failed = len(solutions) - len(passed)
        if not passed or (num_failed and self._rule == "all"):
            reason = "solution_fails" if passed else "all_solutions_fail"
            messages = " ".join(verdict.message for verdict in judged.verdicts)
            self._missing.update(set(_MISSING.findall(messages)))
            return Dropped.of(candidate, reason, _failures(judged.verdicts))
        kept = replace(candidate, problem=replace(candidate.problem, solutions=passed))
        seconds = _rounded_s(judged.verdicts)
        return with_facts(kept, solutions=len(passed), solutions_dropped=num_failed, **{SECONDS: seconds})


def _rounded_s(verdicts: Sequence[Verdict]) -> float:
    """CPU seconds of the slowest test that a solution passed, as the next of 1/4, 1/2, 1, 2 ...: the same each time."""
    passed = (test.cpu_s for verdict in verdicts for test in verdict.tests if test.status is Status.ACCEPTED)
    return 2.0 ** math.ceil(math.log2(max(0.25, *passed)))


def _failures(verdicts: Sequence[Verdict]) -> str:
    failed = [(place, verdict) for place, verdict in enumerate(verdicts) if verdict.status is not Status.ACCEPTED]
    place, first = failed[0]
    where = "" if first.failing_test is None else f" on test {first.failing_test}"
    count = f"{len(failed)} of {len(verdicts)} solutions fail"
    return f"{count}; solution {place}: {first.status}{where} {first.message}".strip()


class Steadiness:
    """Problems whose solutions get the same verdict `repeats` times. Solutions that do not are dropped."""

    name = "flakiness"
    notes: Sequence[str] = ()

    def __init__(self, programs: CandidatePrograms, rule: Rule, repeats: int) -> None:
        self._programs = programs
        self._rule: Rule = rule
        self._repeats = repeats

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"judge": self._programs.judge_identity, "rule": self._rule, "repeats": self._repeats}

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""

        def repeated(candidate: Candidate) -> list[Any]:
            if isinstance(candidate.problem.tests, AnswerTests):
                return []
            numbers = range(1, self._repeats)
            return [repetition(program, number) for program in solutions_of(candidate.problem) for number in numbers]

        for judged in self._programs.judged(candidates, repeated):
            yield self._decided(judged) if isinstance(judged, JudgedCandidate) else judged

    def _decided(self, judged: JudgedCandidate) -> Candidate | Dropped:
        candidate, each = judged.candidate, self._repeats - 1
        if not judged.verdicts:
            return candidate
        solutions = solutions_of(candidate.problem)
        steady = [
            program.source
            for place, program in enumerate(solutions)
            if all(one.status is Status.ACCEPTED for one in judged.verdicts[place * each : (place + 1) * each])
        ]
        if not steady or (len(steady) < len(solutions) and self._rule == "all"):
            num_flaky = len(solutions) - len(steady)
            detail = f"{num_flaky} of {len(solutions)} solutions pass once and not each of {self._repeats} times"
            return Dropped.of(candidate, "flaky", detail)
        return replace(candidate, problem=replace(candidate.problem, solutions=steady))


def _judged_solutions(
    programs: CandidatePrograms, candidates: Iterable[Candidate]
) -> Iterator[JudgedCandidate | Dropped]:
    return programs.judged(
        candidates,
        lambda candidate: [] if isinstance(candidate.problem.tests, AnswerTests) else solutions_of(candidate.problem),
    )
