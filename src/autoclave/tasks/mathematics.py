"""Task of solving mathematics: a problem becomes a prompt, the comparison of the final answer the reward."""

from concurrent.futures import Future

from autoclave.config import MathematicsConfig
from autoclave.core import Problem, Program, Reward, TaskItem
from autoclave.judge import ANSWER_RULES, Judge, JudgeJob
from autoclave.tasks.interface import badly_formed, full_marks, item_of, rewarded


class Mathematics:
    """Items from problems with `answer` tests, and rewards by `judge`: 1 if the final answer matches, else 0.

    A response without a final answer earns 0 and is not compared. Only its answer counts, not how it got there.
    """

    name = "mathematics"

    def __init__(self, judge: Judge, config: MathematicsConfig) -> None:
        self._judge = judge
        self._config = config

    def item(self, problem: Problem) -> TaskItem:
        return item_of(self.name, problem, self._config.template)

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        problem: Problem = item.payload
        answer = ANSWER_RULES[self._config.answer](response)
        if answer is None:
            return badly_formed(self._judge, item, "no final answer in the response")
        return rewarded(self._judge, JudgeJob(problem, Program(answer, problem.language), id=item.id), full_marks)
