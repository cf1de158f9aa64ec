"""Whether tests tell right programs from wrong ones: those that know nothing fail, and most mutants of a solution."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from autoclave.core import CallTests, CheckTests, Problem, Program, Status, StdinTests
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.filters import with_facts
from autoclave.problems.curation.mutants import mutants
from autoclave.problems.curation.programs import CandidatePrograms, JudgedCandidate, solutions_of
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.verification import SECONDS

_TIMES = 4
"""How many times as long as a solution a mutant may take before it counts as failed."""
LEAST_LIMIT_S = 1.0
_FEWEST = 4
"""Mutants that it takes to tell anything: any one may do the same as the solution."""
_FIRST = "return [*arguments, *named.values()][0]"
_LITERAL_LIMIT = 10_000
"""Characters of an answer that a program may say by heart."""


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
        return [*trivial_programs(candidate.problem).values(), *self._mutants(candidate.problem)]

    def _mutants(self, problem: Problem) -> list[Program]:
        solution = next(iter(solutions_of(problem)), None)
        if solution is None or not isinstance(problem.tests, StdinTests | CallTests | CheckTests):
            return []
        seed = int(problem.digest[:12], 16)
        found = mutants(solution.source, solution.language, self._num_mutants, seed)
        return [Program(source, solution.language) for source in found]

    def _decided(self, judged: JudgedCandidate) -> Candidate | Dropped:
        candidate = judged.candidate
        names = list(trivial_programs(candidate.problem))
        verdicts = iter(judged.verdicts)
        for name, verdict in zip(names, islice(verdicts, len(names)), strict=True):
            if verdict.status is Status.ACCEPTED:
                return Dropped.of(candidate, "trivial_program_passes", f"a program passes that {name}")
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


def trivial_programs(problem: Problem) -> dict[str, Program]:
    """Programs that know nothing of the problem, by what they do. Python, whatever the solutions are written in."""
    tests = problem.tests
    if problem.language != "python":
        return {}
    if isinstance(tests, StdinTests):
        outputs = [case.output for case in tests.cases]
        return {
            "prints nothing": Program("pass"),
            "repeats its input": Program("import sys\nsys.stdout.write(sys.stdin.read())"),
        } | {
            f"prints {name}": Program(f"import sys\nsys.stdout.write({text!r})")
            for name, text in _answers(outputs)
            if len(text) <= _LITERAL_LIMIT
        }
    if isinstance(tests, CallTests):
        found = {"returns None": "return None", "returns its first argument": _FIRST}
        written = [json.dumps(case.output) for case in tests.cases]
        for name, text in _answers(written):
            if len(text) <= _LITERAL_LIMIT:
                found[f"returns {name}"] = f"import json; return json.loads({text!r})"
        return {name: _function(tests.entry_point, body) for name, body in found.items()}
    if isinstance(tests, CheckTests):
        bodies = {f"returns {value}": f"return {value}" for value in ("None", "True", "False", "0", "''", "[]")}
        bodies["returns its first argument"] = _FIRST
        return {name: _function(tests.entry_point, body) for name, body in bodies.items()}
    return {}


def _answers(outputs: Sequence[str]) -> list[tuple[str, str]]:
    """Answers that a program could say by heart: of the first test, and the one that most tests have."""
    common = Counter(outputs).most_common(1)[0][0]
    return [("the answer of the first test", outputs[0]), ("the most common answer", common)]


def _function(entry_point: str, body: str) -> Program:
    owner, _, name = entry_point.rpartition(".")
    if owner:
        return Program(f"class {owner}:\n    def {name}(self, *arguments, **named):\n        {body}\n")
    return Program(f"def {name}(*arguments, **named):\n    {body}\n")
