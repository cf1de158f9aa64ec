"""Whether problems are of the kind that a task asks: programs to write, or answers to find."""

from __future__ import annotations

from collections.abc import Iterable

from autoclave.config import TaskSettings
from autoclave.core import AnswerTests, ConfigError, Problem


def require_fitting(problems: Iterable[Problem], task: TaskSettings, where: str) -> None:
    """Look at all `problems`, which are from the place that `where` names, before any is asked by `task`.

    Raises:
        ConfigError: one has tests of another kind; the message names it and the fix.
    """
    for problem in problems:
        asks_for_answer = isinstance(problem.tests, AnswerTests)
        if asks_for_answer is not task.asks_for_answers:
            wanted = "mathematics" if asks_for_answer else "code_generation"
            raise ConfigError(
                f"{where}: problem {problem.id!r} has tests of kind {problem.tests.kind!r}, which are not of "
                f"task.name={task.name}; use task.name={wanted}, or leave the problem out"
            )
