"""The reward: the share of tests passed, less 0.01 for each character above a limit."""

from concurrent.futures import Future

from autoclave.core import Problem, Program, Reward, TaskItem, Verdict
from autoclave.judge import EXTRACTION_RULES, Judge, JudgeJob
from autoclave.tasks import badly_formed, item_of, rewarded
from short.settings import ShortConfig


class Short:
    """The share of tests that a program passes, less 0.01 for each character too many."""

    name = "short"

    def __init__(self, judge: Judge, config: ShortConfig) -> None:
        self._judge, self._config = judge, config

    def item(self, problem: Problem) -> TaskItem:
        """Return the prompt for `problem`."""
        return item_of(self.name, problem, self._config.template)

    def reward(self, item: TaskItem, response: str) -> Future[Reward]:
        """Start judging `response`. Where the judge fails, the reward has no value; never turn that into 0."""
        source = EXTRACTION_RULES["last_fence"](response)
        if source is None:
            return badly_formed(self._judge, item, "no program in the response")
        too_many = max(0, len(source.strip()) - self._config.free_characters)

        def value(verdict: Verdict) -> float:
            return max(0.0, verdict.passed_share - 0.01 * too_many)

        job = JudgeJob(item.payload, Program(source, item.payload.language), id=item.id, stop_at_failure=False)
        return rewarded(self._judge, job, value)
