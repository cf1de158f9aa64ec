"""Protocol of a task, and the conversion of verdicts into rewards that tasks share."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from autoclave.core import Problem, Reward, Status, TaskItem, Verdict
from autoclave.core.futures import chained, completed
from autoclave.judge import Judge, JudgeJob
from autoclave.problems import Template, problem_messages


class Task(Protocol):
    """Makes prompts from problems, and rewards responses."""

    @property
    def name(self) -> str:
        """Name in settings and items."""
        ...

    def item(self, problem: Problem) -> TaskItem:
        """Return the item of `problem`, with its messages."""
        ...

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """Start to judge `response`, and return its reward: None on a fault of the judge.

        Raises:
            InputError: at once, when the problem of the item cannot be judged.
        """
        ...


def item_of(task: str, problem: Problem, template: Template) -> TaskItem:
    return TaskItem(task, problem.id, problem.id, problem_messages(problem, template), problem)


def rewarded(judge: Judge, job: JudgeJob, value: Callable[[Verdict], float]) -> Future[Reward]:
    """Return the reward of `job` by the `value` of its verdict. It fails or is cancelled with the verdict."""
    return chained(judge.submit(job), lambda verdict: Reward.of(verdict, value))


def badly_formed(judge: Judge, item: TaskItem, message: str) -> Future[Reward]:
    """Return the reward 0 of a response without a program or answer."""
    verdict = Verdict.of(Status.BAD_FORMAT, problem_id=item.payload.id, id=item.id, level=judge.level, message=message)
    return completed(Reward.of(verdict, full_marks))


def full_marks(verdict: Verdict) -> float:
    """1 if all tests that ran passed, else 0."""
    return float(verdict.is_accepted)
