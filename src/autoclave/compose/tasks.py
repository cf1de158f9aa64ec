"""The task that the settings name."""

from __future__ import annotations

from autoclave.config import MathematicsConfig, TaskConfig
from autoclave.judge import Judge
from autoclave.tasks import CodeGeneration, Mathematics, Task


def build_task(config: TaskConfig, judge: Judge) -> Task:
    """What the policy is asked, and how its responses are rewarded by `judge`."""
    if isinstance(config, MathematicsConfig):
        return Mathematics(judge, config)
    return CodeGeneration(judge, config)


def build_task_by_all_tests(config: TaskConfig, judge: Judge) -> Task | None:
    """The task with rewards by all tests, where `config` chooses some of them; else None."""
    if isinstance(config, MathematicsConfig) or config.tests == "all":
        return None
    return CodeGeneration(judge, config.model_copy(update={"tests": "all", "reward": "binary"}))
