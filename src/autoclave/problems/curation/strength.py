"""Whether tests tell right programs from wrong ones: those that know nothing fail, and most mutants of a solution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoclave.core import CallTests, CheckTests, Problem, Program, Status, StdinTests
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.filters import with_facts
from autoclave.problems.curation.lazy_programs import accepted_names, lazy_programs
from autoclave.problems.curation.mutants import mutants
from autoclave.problems.curation.programs import CandidatePrograms, JudgedCandidate, solutions_of
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.verification import SECONDS

_TIMES = 4
"""How many times as long as a solution a mutant may take before it counts as failed."""
LEAST_LIMIT_S = 1.0
_FEWEST = 4
"""Mutants that it takes to tell anything: any one may do the same as the solution."""


class Strength:
    """Problems whose tests fail every program that knows nothing, and at least `minimum_killed` of the mutants.

    The share of mutants that fail is recorded. Many loop for ever, so their time limit is a multiple of what a solution
    takes, where that is known. Mutants are made of the first solution; problems without any, where no program runs, or
    whose solution has few places to change, are judged by the other programs alone.
    """

    name = "strength"
    notes: Sequence[str] = ()

    def __init__(self, programs: CandidatePrograms, num_mutants: int, minimum_killed: float) -> None:
        self._programs = programs
        self._num_mutants = num_mutants
        self._minimum_killed = minimum_killed

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "judge": self._programs.judge_identity,
            "mutants": self._num_mutants,
            "minimum_killed": self._minimum_killed,
        }

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Candidate | Dropped]:
        """See `Stage`."""
        for judged in self._programs.judged(candidates, self._wrong_programs, _soon_over):
            yield self._decided(judged) if isinstance(judged, JudgedCandidate) else judged

    def _wrong_programs(self, candidate: Candidate) -> list[Program]:
        return [*lazy_programs(candidate.problem).values(), *self._mutants(candidate.problem)]

    def _mutants(self, problem: Problem) -> list[Program]:
        solution = next(iter(solutions_of(problem)), None)
        if solution is None or not isinstance(problem.tests, StdinTests | CallTests | CheckTests):
            return []
        seed = int(problem.digest[:12], 16)
        found = mutants(solution.source, solution.language, self._num_mutants, seed)
        return [Program(source, solution.language) for source in found]

    def _decided(self, judged: JudgedCandidate) -> Candidate | Dropped:
        candidate = judged.candidate
        if names := accepted_names(candidate.problem, judged.verdicts):
            return Dropped.of(candidate, "trivial_program_passes", f"a program passes that {names[0]}")
        verdicts = judged.verdicts[len(lazy_programs(candidate.problem)) :]
        compiled = [verdict.status for verdict in verdicts if verdict.status is not Status.COMPILE_ERROR]
        outcomes = [status is not Status.ACCEPTED for status in compiled]
        if len(outcomes) < _FEWEST:
            return candidate
        killed = sum(outcomes) / len(outcomes)
        if killed < self._minimum_killed:
            detail = f"{outcomes.count(False)} of {len(outcomes)} mutants of a solution pass all tests"
            return Dropped.of(candidate, "mutants_pass", detail)
        return with_facts(candidate, killed_share=killed, mutants=len(outcomes))


def _soon_over(candidate: Candidate) -> Problem:
    seconds = candidate.facts.get(SECONDS)
    limit_s = candidate.problem.time_limit_s if seconds is None else max(LEAST_LIMIT_S, _TIMES * seconds)
    return replace(candidate.problem, time_limit_s=limit_s)
