"""What every task offers the stages, and what its tasks have in common: from a verdict to a reward."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from autoclave.core import Problem, Reward, Status, TaskItem, Verdict
from autoclave.judge import Judge, JudgeJob


class Task(Protocol):
    """Asks something, and says what an answer is worth."""

    @property
    def name(self) -> str:
        """As settings and items name it."""
        ...

    def item(self, problem: Problem) -> TaskItem:
        """What the policy is asked for `problem`."""
        ...

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """What `response` earns; starts at once. The reward is None when the judge had a fault.

        Raises:
            InputError: at once, when the problem of the item cannot be judged.
        """
        ...


def rewarded(judge: Judge, job: JudgeJob, scored: Callable[[Verdict], Reward]) -> Future[Reward]:
    """What `scored` makes of the verdict on `job`. A failed or cancelled verdict is a failed or cancelled reward."""
    reward: Future[Reward] = Future()

    def finish(future: Future[Verdict]) -> None:
        if future.cancelled():
            reward.cancel()
        elif error := future.exception():
            reward.set_exception(error)
        else:
            reward.set_result(scored(future.result()))

    judge.submit(job).add_done_callback(finish)
    return reward


def badly_formed(judge: Judge, item: TaskItem, message: str) -> Verdict:
    """The verdict on a response in which there is nothing to judge."""
    problem: Problem = item.payload
    return Verdict.of(Status.BAD_FORMAT, problem_id=problem.id, id=item.id, level=judge.level, message=message)


def share_passed(verdict: Verdict) -> float:
    """The share of the tests that ran and passed; 0 where none ran."""
    passed = [test.status is Status.ACCEPTED for test in verdict.tests]
    return sum(passed) / len(passed) if passed else 0.0


def settled(reward: Reward) -> Future[Reward]:
    """A future that has its reward already."""
    future: Future[Reward] = Future()
    future.set_result(reward)
    return future
