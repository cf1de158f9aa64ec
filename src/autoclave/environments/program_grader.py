"""Grade a file that an episode left as a program, by hidden tests."""

from collections.abc import Callable
from concurrent.futures import Future
from operator import attrgetter

from autoclave.core import EndState, Problem, Program, Reward, Rollout, Status, TaskItem, Verdict
from autoclave.core.futures import chained, completed
from autoclave.environments.verdicts import VALUES
from autoclave.judge import Judge, JudgeJob

ProblemOf = Callable[[TaskItem], Problem]


class ProgramGrader:
    """Judges the file `path` of the end state on the tests of the item's problem. Without this file, the reward is 0.

    `reward` is `binary` or `fraction`, as for single responses.
    """

    def __init__(
        self, judge: Judge, path: str, problem_of: ProblemOf = attrgetter("payload"), reward: str = "binary"
    ) -> None:
        self._judge, self._path, self._problem_of, self._reward = judge, path, problem_of, reward

    def __call__(self, rollout: Rollout) -> Future[Reward]:
        item, problem = rollout.item, self._problem_of(rollout.item)
        state = rollout.end_state or EndState({})
        try:
            program = Program(state.files[self._path].decode(), problem.language)
        except (KeyError, UnicodeDecodeError) as error:
            what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else state.left_out.get(self._path, "missing")
            told, level = f"{self._path}: {what}", self._judge.level
            verdict = Verdict.of(Status.BAD_FORMAT, problem_id=problem.id, id=item.id, level=level, message=told)
            return completed(Reward.of(verdict, VALUES[self._reward]))
        job = JudgeJob(problem, program, id=item.id, stop_at_failure=self._reward == "binary")
        return chained(self._judge.submit(job), lambda verdict: Reward.of(verdict, VALUES[self._reward]))
