"""Many programs of many candidates through a judge: what was judged before comes from the cache, order is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autoclave.core import IncompleteError, InputError, Problem, Program, Verdict
from autoclave.judge import Judge, JudgeJob
from autoclave.judge.streaming import in_order
from autoclave.problems.candidate import Candidate
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.verdict_cache import VerdictCache

T = TypeVar("T")

_COMMENTS = {"python": "#", "cpp": "//"}


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A candidate and what its programs got, in their order."""

    candidate: Candidate
    verdicts: Sequence[Verdict]


class CandidatePrograms:
    """What judges programs of candidates. `pending_limit` is how many are drawn ahead."""

    def __init__(self, judge: Judge, cache: VerdictCache, pending_limit: int) -> None:
        self._judge = judge
        self._cache = cache
        self._pending_limit = pending_limit

    @property
    def judge_identity(self) -> str:
        """What stands for the settings of the judge."""
        return self._cache.judge_identity

    def verdicts(self, jobs: Iterable[JudgeJob]) -> Iterator[Verdict]:
        """The verdicts of jobs in their order, with a fault where there is none.

        Raises:
            InputError: a problem cannot be judged.
            HostError: this host lacks what programs need.
        """
        asked = ((job, self._judge.submit(job) if known is None else _done(known)) for job, known in self._known(jobs))
        for job, verdict in in_order(asked, self._pending_limit):
            self._cache.put(job, verdict)
            yield verdict
        self._cache.flush()

    def _known(self, jobs: Iterable[JudgeJob]) -> Iterator[tuple[JudgeJob, Verdict | None]]:
        return ((job, self._cache.get(job)) for job in jobs)

    def judged(
        self,
        candidates: Iterable[Candidate],
        programs_of: Callable[[Candidate], Sequence[Program]],
        problem_of: Callable[[Candidate], Problem] = lambda candidate: candidate.problem,
    ) -> Iterator[JudgedCandidate | Dropped]:
        """Each candidate with the verdicts of its programs, in order; dropped if it cannot be judged here.

        `problem_of` is what they are judged on. A program ends at the first test that it fails: one that loops for
        ever would take as long as all tests may.

        Raises:
            HostError: this host lacks what programs need.
            IncompleteError: at the end, when faults left candidates without verdicts. All others were given.
        """
        in_doubt: list[str] = []
        asked = self._asked(candidates, programs_of, problem_of)
        verdicts: list[Verdict] = []
        for part, verdict in in_order(asked, self._pending_limit):
            if isinstance(part, Dropped):
                yield part
                continue
            if verdict is not None:
                verdicts.append(verdict)
                if part.job is not None:
                    self._cache.put(part.job, verdict)
            if part.is_last:
                faults = [one.fault for one in verdicts if one.fault is not None]
                if of_problem := next((fault for fault in faults if fault.kind == "problem"), None):
                    yield Dropped.of(part.candidate, "not_judgeable", of_problem.detail)
                elif faults:
                    in_doubt.append(part.candidate.problem.id)
                else:
                    yield JudgedCandidate(part.candidate, verdicts)
                verdicts = []
        self._cache.flush()
        if in_doubt:
            raise IncompleteError(
                f"{len(in_doubt)} problems have no verdict, because the judge failed, the first is {in_doubt[0]!r}; "
                "what was judged is kept: run the same command again"
            )

    def _asked(
        self,
        candidates: Iterable[Candidate],
        programs_of: Callable[[Candidate], Sequence[Program]],
        problem_of: Callable[[Candidate], Problem],
    ) -> Iterator[tuple[_Part | Dropped, Future[Any]]]:
        for candidate in candidates:
            programs = programs_of(candidate)
            problem = replace(problem_of(candidate), solutions=[])
            try:
                self._judge.check(problem)
            except InputError as error:
                yield Dropped.of(candidate, "not_judgeable", str(error)), _done(None)
                continue
            if not programs:
                yield _Part(candidate, None, True), _done(None)
            for number, program in enumerate(programs, 1):
                job = JudgeJob(problem, program)
                known = self._cache.get(job)
                is_last = number == len(programs)
                if known is None:
                    yield _Part(candidate, job, is_last), self._judge.submit(job)
                else:
                    yield _Part(candidate, None, is_last), _done(known)


@dataclass(frozen=True, slots=True)
class _Part:
    """One program of a candidate; `job` is None where nothing is judged."""

    candidate: Candidate
    job: JudgeJob | None
    is_last: bool


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def solutions_of(problem: Problem) -> list[Program]:
    """The official solutions, each once, in their order."""
    return [Program(source, problem.language) for source in dict.fromkeys(problem.solutions)]


def repetition(program: Program, number: int) -> Program:
    """The same program as another one, so that no judge and no cache takes its verdict for known. 0 is itself."""
    if number == 0:
        return program
    return replace(program, source=f"{program.source}\n{_COMMENTS[program.language]} run {number + 1}\n")
