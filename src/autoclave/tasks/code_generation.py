"""Task of writing a program: a problem becomes a prompt, the judge's verdict becomes the reward."""

from concurrent.futures import Future
from operator import attrgetter

from autoclave.config import CodeGenerationConfig
from autoclave.core import Problem, Program, Reward, TaskItem
from autoclave.judge import EXTRACTION_RULES, Judge, JudgeJob
from autoclave.judge.extraction import program_place
from autoclave.tasks.interface import badly_formed, full_marks, item_of, rewarded


class CodeGeneration:
    """Items from problems, and rewards by `judge`.

    `binary`: 1 if all tests pass, else 0; judging stops at the first failure. `fraction`: share of tests passed. A
    response without a program earns 0 and is never run.
    """

    name = "code_generation"

    def __init__(self, judge: Judge, config: CodeGenerationConfig) -> None:
        self._judge = judge
        self._config = config

    def item(self, problem: Problem) -> TaskItem:
        return item_of(self.name, problem, self._config.template)

    def program_of(self, item: TaskItem, response: str) -> str | None:
        """Return the program in a response to `item`, None without one."""
        return EXTRACTION_RULES[self._config.extraction](response) if item.task == self.name else None

    def place_of(self, item: TaskItem, response: str) -> tuple[int, int] | None:
        """Return start and end of that program, in characters of the response."""
        return program_place(response, self._config.extraction) if item.task == self.name else None

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        problem: Problem = item.payload
        source = self.program_of(item, response)
        if source is None:
            return badly_formed(self._judge, item, "no program in the response")
        job = JudgeJob(
            problem,
            Program(source, problem.language),
            id=item.id,
            tests=self._config.tests,
            stop_at_failure=self._config.reward == "binary",
        )
        return rewarded(self._judge, job, full_marks if self._config.reward == "binary" else attrgetter("passed_share"))
