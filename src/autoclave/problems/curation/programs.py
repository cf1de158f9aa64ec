"""Judge many programs of many candidates in order, with a cache of earlier verdicts."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoclave.core import AnswerTests, IncompleteError, InputError, Problem, Program, Verdict
from autoclave.core.closing import Closing
from autoclave.core.futures import completed
from autoclave.core.json import canonical_json, from_plain, to_plain
from autoclave.core.sqlite_files import KeptTexts
from autoclave.judge import Judge, JudgeJob
from autoclave.judge.streaming import in_order
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.stage import Dropped

_COMMENTS = {"python": "#", "cpp": "//"}


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A candidate and the verdicts of its programs, in order."""

    candidate: ProblemCandidate
    verdicts: Sequence[Verdict]


class CandidatePrograms:
    """Judges programs of candidates, and reads ahead at most `pending_limit` jobs."""

    def __init__(self, judge: Judge, cache: "VerdictCache", pending_limit: int) -> None:
        self._judge = judge
        self._cache = cache
        self._pending_limit = pending_limit

    @property
    def judge_identity(self) -> str:
        return self._cache.judge_identity

    def verdicts(self, jobs: Iterable[JudgeJob]) -> Iterator[Verdict]:
        """Yield the verdicts of jobs in their order, also those with faults.

        Raises InputError: a problem cannot be judged. HostError: this host misses something that programs need.
        """
        known = ((job, self._cache.get(job)) for job in jobs)
        submitted = ((job, self._judge.submit(job) if found is None else completed(found)) for job, found in known)
        for job, verdict in in_order(submitted, self._pending_limit):
            self._cache.put(job, verdict)
            yield verdict

    def judged(
        self,
        candidates: Iterable[ProblemCandidate],
        programs_of: Callable[[ProblemCandidate], Sequence[Program]],
        problem_of: Callable[[ProblemCandidate], Problem] = lambda candidate: candidate.problem,
    ) -> Iterator[JudgedCandidate | Dropped]:
        """Yield each candidate with the verdicts of its programs, in order; dropped if it cannot be judged here.

        `problem_of` returns the problem to judge them on. A program stops at its first failed test, so that an endless
        loop costs one time limit.

        Raises HostError: this host misses something that programs need. IncompleteError: at the end, if faults left
        candidates without verdicts.
        """
        inconclusive: list[str] = []
        submitted = self._submitted(candidates, programs_of, problem_of)
        verdicts: list[Verdict] = []
        for part, verdict in in_order(submitted, self._pending_limit):
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
                    inconclusive.append(part.candidate.problem.id)
                else:
                    yield JudgedCandidate(part.candidate, verdicts)
                verdicts = []
        if inconclusive:
            raise IncompleteError(
                f"{len(inconclusive)} problems have no verdict, because the judge failed, the first is "
                f"{inconclusive[0]!r}. Fix: run the same command again; it keeps the other verdicts"
            )

    def _submitted(
        self,
        candidates: Iterable[ProblemCandidate],
        programs_of: Callable[[ProblemCandidate], Sequence[Program]],
        problem_of: Callable[[ProblemCandidate], Problem],
    ) -> "Iterator[tuple[_Part | Dropped, Future[Any]]]":
        for candidate in candidates:
            programs = programs_of(candidate)
            problem = replace(problem_of(candidate), solutions=[])
            try:
                self._judge.check(problem)
            except InputError as error:
                yield Dropped.of(candidate, "not_judgeable", str(error)), completed(None)
                continue
            if not programs:
                yield _Part(candidate, None, True), completed(None)
            for number, program in enumerate(programs, 1):
                job = JudgeJob(problem, program)
                known = self._cache.get(job)
                is_last = number == len(programs)
                if known is None:
                    yield _Part(candidate, job, is_last), self._judge.submit(job)
                else:
                    yield _Part(candidate, None, is_last), completed(known)


@dataclass(frozen=True, slots=True)
class _Part:
    """One program of a candidate; `job` is None for a cached verdict, or without programs."""

    candidate: ProblemCandidate
    job: JudgeJob | None
    is_last: bool


def solutions_of(problem: Problem) -> list[Program]:
    """Return the different official solutions, in order."""
    return [Program(source, problem.language) for source in dict.fromkeys(problem.solutions)]


def repetition(program: Program, number: int) -> Program:
    """Return the program with a comment, so that judges and caches treat it as another one; 0 is the program itself."""
    if number == 0:
        return program
    return replace(program, source=f"{program.source}\n{_COMMENTS[program.language]} run {number + 1}\n")


class JudgedStage:
    """Base of stages that decide on each candidate by the verdicts of its programs, by default the solutions."""

    name: str

    def __init__(self, programs: CandidatePrograms, **settings: Any) -> None:
        self._programs = programs
        self.settings: Mapping[str, Any] = {"judge": programs.judge_identity, **settings}

    @property
    def notes(self) -> Sequence[str]:
        return ()

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        for judged in self._programs.judged(candidates, self._programs_of, self._problem_of):
            yield self._decided(judged) if isinstance(judged, JudgedCandidate) else judged

    def _programs_of(self, candidate: ProblemCandidate) -> Sequence[Program]:
        return [] if isinstance(candidate.problem.tests, AnswerTests) else solutions_of(candidate.problem)

    def _problem_of(self, candidate: ProblemCandidate) -> Problem:
        return candidate.problem

    def _decided(self, judged: JudgedCandidate) -> ProblemCandidate | Dropped:
        raise NotImplementedError


class VerdictCache(Closing):
    """Cache of verdicts. `judge_settings` is all that verdicts depend on beside problem and program.

    Raises InputError: the file is damaged or cannot be written.
    """

    def __init__(self, path: Path, judge_settings: object) -> None:
        self._kept = KeptTexts(path, "verdicts")
        self.judge_identity = hashlib.sha256(canonical_json(judge_settings)).hexdigest()
        self.num_found = self.num_kept = 0

    def get(self, job: JudgeJob) -> Verdict | None:
        text = self._kept.get(self._key(job))
        if text is None:
            return None
        self.num_found += 1
        return from_plain(Verdict, json.loads(text), "cached verdict")

    def put(self, job: JudgeJob, verdict: Verdict) -> None:
        """Cache a verdict, unless it is a fault."""
        if verdict.fault is None:
            self.num_kept += 1
            self._kept.put(self._key(job), json.dumps(to_plain(verdict)))

    def _key(self, job: JudgeJob) -> bytes:
        program, problem = job.program, job.problem
        parts = [
            *(self.judge_identity, problem.digest, program.language, program.source, job.tests, job.stop_at_failure)
        ]
        return hashlib.sha256(canonical_json(parts)).digest()

    def close(self) -> None:
        self._kept.close()
