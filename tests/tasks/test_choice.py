"""The task of the settings, and its variant by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.compose.tasks import build_task_by_all_tests, items_of, open_task
from autoclave.config import CodeGenerationConfig, MathematicsConfig, TrainConfig, load
from autoclave.core import Problem, StdinCase, StdinTests, TaskItem
from autoclave.tasks import CodeGeneration, Mathematics

from .test_code_generation import ScriptedJudge

RECIPES = Path(__file__).parents[2] / "recipes"


def test_the_default_task_is_code_generation():
    config = load(TrainConfig, RECIPES / "demo.yaml").config
    with open_task(config.task, ScriptedJudge()) as task:
        assert isinstance(task, CodeGeneration)


def test_the_recipe_of_mathematics_asks_for_answers():
    config = load(TrainConfig, RECIPES / "mathematics.yaml").config
    with open_task(config.task, ScriptedJudge()) as task:
        assert isinstance(task, Mathematics)


def test_only_programs_judged_by_some_tests_have_a_task_by_all_of_them():
    judge = ScriptedJudge()
    assert build_task_by_all_tests(MathematicsConfig(), judge) is None
    assert build_task_by_all_tests(CodeGenerationConfig(), judge) is None
    by_all = build_task_by_all_tests(CodeGenerationConfig(tests="longest:1", reward="fraction"), judge)
    assert isinstance(by_all, CodeGeneration)
    assert (by_all._config.tests, by_all._config.reward) == ("all", "binary")


def test_an_error_in_an_item_names_task_and_problem():
    class Broken:
        name = "broken"

        def item(self, problem: Problem) -> TaskItem:
            raise KeyError("notes")

    problem = Problem(id="add", statement="Add.", tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n")]))
    with pytest.raises(KeyError) as raised:
        items_of(Broken(), [problem])
    assert raised.value.__notes__ == ["In the item of task 'broken' for problem 'add'"]
