"""Validation of problems and jobs before anything runs: whether they can be judged here, and by which tests."""

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Problem
from autoclave.judge.environments import Environments
from autoclave.judge.evaluation import PreparedJob, prepare
from autoclave.judge.interface import JudgeJob
from autoclave.judge.kinds import TestKind, kind_of
from autoclave.judge.limits import require_room_for_output
from autoclave.judge.traces import PreparedTrace, prepare_trace


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """Result of the validation of a problem, over all of its tests, kept while the problem is referenced.

    `number` is unique among all problems.
    """

    problem: weakref.ref[Problem]
    number: int
    kind: TestKind
    digest: str


class ProblemValidation:
    """One per judge. Many programs share a problem. Safe to use from several threads.

    Calls `forgotten` with the number of a problem that is no longer referenced, in any thread: it must take no lock.
    """

    def __init__(
        self,
        sandbox_config: SandboxConfig,
        judge_config: JudgeConfig,
        forgotten: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.environments = Environments(judge_config)
        self._sandbox_config = sandbox_config
        self._judge_config = judge_config
        self._forgotten = forgotten
        self._numbers = itertools.count()
        self._known: dict[int, KnownProblem] = {}

    def of(self, problem: Problem) -> KnownProblem:
        """Validate a problem, once.

        Raises InputError: it cannot be judged here. HostError: a requirement of its programs is missing on this host.
        """
        place = id(problem)
        known = self._known.get(place)
        if known is None or known.problem() is not problem:
            kind = kind_of(problem, self.environments)
            require_room_for_output(problem, self._sandbox_config)
            number = next(self._numbers)
            forget = partial(_forget, weakref.ref(self), place, number)
            known = KnownProblem(weakref.ref(problem, forget), number, kind, problem.digest)
            self._known[place] = known
        return known

    def prepared(self, job: JudgeJob) -> PreparedJob:
        """Validate a job.

        Raises InputError: it cannot be run, or its problem cannot be judged here. HostError: a requirement of the
        problem's programs is missing on this host.
        """
        return prepare(job, self.of(job.problem).kind, self._sandbox_config, self._judge_config)

    def prepared_trace(self, job: JudgeJob, index: int) -> PreparedTrace:
        """Validate a trace of the job's program on one test.

        Raises InputError: there is no such test, or it cannot be traced; or as for `prepared`. HostError: as for
        `prepared`.
        """
        return prepare_trace(self.prepared(job), index, self.environments.profiles)

    def close(self) -> None:
        self.environments.close()


def _forget(validation: weakref.ref[ProblemValidation], place: int, number: int, _: weakref.ref[Problem]) -> None:
    if opened := validation():
        known = opened._known.get(place)  # pyright: ignore[reportPrivateUsage]
        if known is not None and known.number == number:
            del opened._known[place]  # pyright: ignore[reportPrivateUsage]
        opened._forgotten(number)  # pyright: ignore[reportPrivateUsage]
