"""The task of writing a program: a problem becomes a prompt, the judge's verdict becomes the reward."""

from __future__ import annotations

from concurrent.futures import Future

from autoclave.config import CodeGenerationConfig
from autoclave.core import Problem, Program, Reward, TaskItem, Verdict
from autoclave.judge import EXTRACTION_RULES, Judge, JudgeJob
from autoclave.problems import problem_messages
from autoclave.tasks.interface import badly_formed, rewarded, settled, share_passed


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
        """What the policy is asked for `problem`."""
        messages = tuple(problem_messages(problem, self._config.template))
        return TaskItem(self.name, problem.id, problem.id, messages, problem)

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """What `response` earns; starts at once. The reward is None when the judge had a fault."""
        problem: Problem = item.payload
        source = EXTRACTION_RULES[self._config.extraction](response)
        if source is None:
            return settled(self._scored(badly_formed(self._judge, item, "no program in the response")))
        job = JudgeJob(
            problem,
            Program(source, problem.language),
            id=item.id,
            tests=self._config.tests,
            stop_at_failure=self._config.reward == "binary",
        )
        return rewarded(self._judge, job, self._scored)

    def _scored(self, verdict: Verdict) -> Reward:
        if verdict.status is None:
            return Reward(None, "no_verdict", verdict=verdict)
        share = share_passed(verdict)
        value = float(verdict.is_accepted) if self._config.reward == "binary" else share
        return Reward(value, verdict.status, {"tests_passed": share}, verdict)
