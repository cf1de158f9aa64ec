"""The task that the settings name."""

from collections.abc import Callable, Iterable
from typing import Any

from autoclave.config import CodeGenerationConfig, TaskConfig
from autoclave.core import Problem, TaskItem
from autoclave.core.plugins import find_plugin
from autoclave.judge import Judge
from autoclave.tasks import CodeGeneration, Mathematics, Task

_BUILT_IN: dict[str, Callable[[Judge, Any], Task]] = {"code_generation": CodeGeneration, "mathematics": Mathematics}


def find_task(name: str) -> Callable[[Judge, Any], Task]:
    """Return what makes the task of this name from the judge and its settings.

    Raises:
        HostError: no installed package has it, or it cannot be loaded.
    """
    return _BUILT_IN.get(name) or find_plugin("autoclave.tasks", name, "task.name", _BUILT_IN)


def build_task(config: TaskConfig, judge: Judge) -> Task:
    return find_task(config.name)(judge, config)


def items_of(task: Task, problems: Iterable[Problem]) -> list[TaskItem]:
    """Return the items of `problems`; an error of the task gets a note that names it and the problem."""
    items: list[TaskItem] = []
    for problem in problems:
        try:
            items.append(task.item(problem))
        except Exception as error:
            error.add_note(f"In the item of task {task.name!r} for problem {problem.id!r}")
            raise
    return items


def build_task_by_all_tests(config: TaskConfig, judge: Judge) -> Task | None:
    """The task with rewards by all tests, where `config` chooses some of them; else None."""
    if not isinstance(config, CodeGenerationConfig) or config.tests == "all":
        return None
    return CodeGeneration(judge, config.model_copy(update={"tests": "all", "reward": "binary"}))
