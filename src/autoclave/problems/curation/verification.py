"""Stages that run the official solutions, and check that they pass, that they agree, and that they pass each time.

Sources of the rules: every solution must pass every test (DeepCoder, data section); failing solutions are dropped, and
problems without a passing one (PPO on Ray, data section).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from autoclave.core import AnswerTests, Program, Status, Verdict
from autoclave.judge.environments import recovery_of
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.filters import with_facts
from autoclave.problems.curation.programs import (
    CandidatePrograms,
    JudgedCandidate,
    JudgedStage,
    repetition,
    solutions_of,
)
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.statements import TABLES

Rule = Literal["all", "any"]
SECONDS = "solution_seconds"
"""Name of the fact: CPU seconds of a solution on its slowest test; only verified problems have it."""
_MISSING = re.compile(r"ModuleNotFoundError: (\w+)")
_SEVERAL_ANSWERS = TABLES["several answers"]
"""Phrases of statements that accept several answers, and so need a special judge."""


class Agreement(JudgedStage):
    """Stage that drops problems with several right answers, which need a special judge.

    A problem is dropped if some solutions pass a test and others print something else there, and the statement accepts
    several answers, or at least two solutions, and at least `share` of all, are wrong in that way.
    """

    name = "special_judge"

    def __init__(self, programs: CandidatePrograms, share: float) -> None:
        super().__init__(programs, share=share)
        self._share = share

    def _decided(self, judged: JudgedCandidate) -> ProblemCandidate | Dropped:
        disputed = disputed_tests(judged.verdicts)
        if not disputed:
            return judged.candidate
        wrong = sum(verdict.status is Status.WRONG_ANSWER for verdict in judged.verdicts)
        statement = " ".join(judged.candidate.problem.statement.lower().split())
        cue = next((words for words in _SEVERAL_ANSWERS if words in statement), None)
        if cue is None and (wrong < 2 or wrong < self._share * len(judged.verdicts)):
            return judged.candidate
        why = f"the statement has {cue!r}" if cue else "too many for mistakes"
        detail = (
            f"{wrong} of {len(judged.verdicts)} solutions print something else than expected on tests that others "
            f"pass (test {disputed[0]}); {why}"
        )
        return Dropped.of(judged.candidate, "special_judge", detail)


def disputed_tests(verdicts: Sequence[Verdict]) -> list[int]:
    """Return the tests that some programs pass and others answer wrongly; programs stop at their first failure."""
    passed, wrong = set[int](), set[int]()
    for verdict in verdicts:
        for test in verdict.tests:
            if test.status is Status.ACCEPTED:
                passed.add(test.index)
            elif test.status is Status.WRONG_ANSWER:
                wrong.add(test.index)
    return sorted(passed & wrong)


class Verification(JudgedStage):
    """Stage that keeps problems whose solutions all pass, or with the rule `any` the solutions that pass, at least one.

    Sources in `unsolved` may have problems without solutions. Problems with answers are not verified.
    """

    name = "verification"

    def __init__(self, programs: CandidatePrograms, rule: Rule, unsolved: frozenset[str]) -> None:
        super().__init__(programs, rule=rule, unsolved=sorted(unsolved))
        self._missing = Counter[str]()
        self._rule: Rule = rule
        self._unsolved = unsolved

    @property
    def notes(self) -> Sequence[str]:
        """Sentences with the number of problems that each missing package would recover."""
        return [
            f"{count} problems were dropped because solutions import {package}. Fix: sources[].{recovery_of(package)}"
            for package, count in self._missing.most_common()
        ]

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        self._missing.clear()
        yield from super().run(candidates)

    def _decided(self, judged: JudgedCandidate) -> ProblemCandidate | Dropped:
        candidate = judged.candidate
        if isinstance(candidate.problem.tests, AnswerTests):
            return candidate
        solutions = solutions_of(candidate.problem)
        if not solutions:
            if candidate.origin.set in self._unsolved:
                return with_facts(candidate, solutions=0)
            return Dropped.of(candidate, "no_solutions", "its tests cannot be verified")
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
    """Return the CPU seconds of the slowest passed test, rounded up to 1/4, 1/2, 1, 2 ..., so that reruns agree."""
    passed = (test.cpu_s for verdict in verdicts for test in verdict.tests if test.status is Status.ACCEPTED)
    return 2.0 ** math.ceil(math.log2(max(0.25, *passed)))


def _failures(verdicts: Sequence[Verdict]) -> str:
    failed = [(place, verdict) for place, verdict in enumerate(verdicts) if verdict.status is not Status.ACCEPTED]
    place, first = failed[0]
    where = "" if first.failing_test is None else f" on test {first.failing_test}"
    count = f"{len(failed)} of {len(verdicts)} solutions fail"
    return f"{count}; solution {place}: {first.status}{where} {first.message}".strip()


class Flakiness(JudgedStage):
    """Stage that drops solutions that do not pass `repeats` times."""

    name = "flakiness"

    def __init__(self, programs: CandidatePrograms, rule: Rule, repeats: int) -> None:
        super().__init__(programs, rule=rule, repeats=repeats)
        self._rule: Rule = rule
        self._repeats = repeats

    def _programs_of(self, candidate: ProblemCandidate) -> Sequence[Program]:
        numbers = range(1, self._repeats)
        return [repetition(program, number) for program in super()._programs_of(candidate) for number in numbers]

    def _decided(self, judged: JudgedCandidate) -> ProblemCandidate | Dropped:
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
