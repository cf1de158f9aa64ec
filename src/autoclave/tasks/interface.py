"""Protocol of a task, and what tasks have in common: from a verdict to a reward."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from autoclave.core import Problem, Reward, Status, TaskItem, Verdict
from autoclave.judge import Judge, JudgeJob
from autoclave.problems import Template, problem_messages


class Task(Protocol):
    """Asks something, and says what an answer is worth."""

    @property
    def name(self) -> str:
        """As settings and items name it."""
        ...

    def item(self, problem: Problem) -> TaskItem:
        """Messages that ask the policy for `problem`."""
        ...

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """Reward of `response`; starts at once. The reward is None when the judge had a fault.

        Raises:
            InputError: at once, when the problem of the item cannot be judged.
        """
        ...


def item_of(task: str, problem: Problem, template: Template) -> TaskItem:
    """Messages that ask the policy for `problem`, by the task of that name."""
    return TaskItem(task, problem.id, problem.id, problem_messages(problem, template), problem)


def rewarded(judge: Judge, job: JudgeJob, value: Callable[[Verdict], float]) -> Future[Reward]:
    """The reward for `job`, by the `value` of its verdict. A failed or cancelled verdict is such a reward."""
    reward: Future[Reward] = Future()

    def finish(future: Future[Verdict]) -> None:
        if future.cancelled():
            reward.cancel()
        elif error := future.exception():
            reward.set_exception(error)
        else:
            reward.set_result(_reward(future.result(), value))

    judge.submit(job).add_done_callback(finish)
    return reward


def badly_formed(judge: Judge, item: TaskItem, message: str) -> Future[Reward]:
    """The reward for a response in which there is nothing to judge: 0, at once."""
    reward: Future[Reward] = Future()
    verdict = Verdict.of(Status.BAD_FORMAT, problem_id=item.payload.id, id=item.id, level=judge.level, message=message)
    reward.set_result(_reward(verdict, full_marks))
    return reward


def full_marks(verdict: Verdict) -> float:
    """1 if all tests that ran passed, else 0."""
    return float(verdict.is_accepted)


def _reward(verdict: Verdict, value: Callable[[Verdict], float]) -> Reward:
    if verdict.status is None:
        return Reward(None, "no_verdict", verdict=verdict)
    return Reward(value(verdict), verdict.status, {"tests_passed": verdict.passed_share}, verdict)
