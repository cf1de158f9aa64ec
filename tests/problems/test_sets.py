"""Demonstrations of problems from files."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from autoclave.config import (
    CodeGenerationConfig,
    MathematicsConfig,
    ProblemFilesConfig,
    SftConfig,
    SyntheticConfig,
    TrainConfig,
)
from autoclave.config.task import Extraction
from autoclave.core import AnswerTests, ConfigError, InputError, Problem, StdinCase, StdinTests
from autoclave.core.json import to_plain
from autoclave.judge.extraction import last_fence
from autoclave.problems import ProblemSets


def problem(number: int, *solutions: str, language: str = "python") -> Problem:
    tests = StdinTests("stdin", [StdinCase("", f"{number}\n")])
    return Problem(
        id=str(number), statement=f"Say {number}.", tests=tests, solutions=list(solutions), language=language
    )


def sets(folder: Path, *train: Problem, extraction: Extraction = "last_fence") -> ProblemSets:
    for name, problems in (("train", train), ("heldout", [problem(99)])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(to_plain(each)) + "\n" for each in problems))
    files = ProblemFilesConfig(train=folder / "train.jsonl", heldout=folder / "heldout.jsonl")
    return ProblemSets(TrainConfig(problems=files, task=CodeGenerationConfig(template="plain", extraction=extraction)))


def test_every_solution_of_every_problem_is_a_demonstration_in_their_order(tmp_path: Path):
    found = sets(tmp_path, problem(1, "print(1)", "print(2 - 1)"), problem(2), problem(3, "print(3)")).demonstrations()
    assert [(each.task_id, last_fence(each.response)) for each in found] == [
        ("1", "print(1)"),
        ("1", "print(2 - 1)"),
        ("3", "print(3)"),
    ]
    assert [each.messages[-1]["content"] for each in found] == ["Say 1.", "Say 1.", "Say 3."]
    assert found[0].response == "```python\nprint(1)\n```"


def test_the_fence_of_a_demonstration_names_its_language(tmp_path: Path):
    source = '#include <cstdio>\nint main() { std::puts("1"); }'
    (found,) = sets(tmp_path, problem(1, source, language="cpp")).demonstrations()
    assert found.response.startswith("```cpp\n")
    assert last_fence(found.response) == source


@pytest.mark.parametrize("ticks", ["```", "````"])
def test_a_program_that_holds_fences_is_found_whole_in_its_response(tmp_path: Path, ticks):
    source = f'"""\n{ticks}\nexample\n{ticks}\n"""\nprint(1)'
    (found,) = sets(tmp_path, problem(1, source)).demonstrations()
    assert last_fence(found.response) == source


def test_a_program_that_is_the_whole_response_has_no_fence(tmp_path: Path):
    (found,) = sets(tmp_path, problem(1, "print(1)"), extraction="whole").demonstrations()
    assert found.response == "print(1)"
    generated = SyntheticConfig(train=64, heldout=200)
    small = TrainConfig(
        problems=generated, task=CodeGenerationConfig(extraction="whole"), sft=SftConfig(demonstrations=2)
    )
    for each in ProblemSets(small).demonstrations():
        ast.parse(each.response)


def test_problems_without_solutions_are_an_error_for_the_warm_start(tmp_path: Path):
    with pytest.raises(ConfigError, match="the training problems have no solutions to imitate"):
        sets(tmp_path, problem(1)).demonstrations()


# --- Mathematics ---------------------------------------------------------------------------------------------------


def sum_of(left: int, right: int, *solutions: str) -> Problem:
    tests = AnswerTests("answer", str(left + right), "math")
    return Problem(id=f"{left}+{right}", statement=f"{left} + {right}?", tests=tests, solutions=list(solutions))


def mathematics(folder: Path, train: list[Problem], heldout: list[Problem], task: str = "mathematics") -> ProblemSets:
    for name, problems in (("train", train), ("heldout", heldout)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(to_plain(each)) + "\n" for each in problems))
    files = ProblemFilesConfig(train=folder / "train.jsonl", heldout=folder / "heldout.jsonl")
    chosen = MathematicsConfig(template="plain") if task == "mathematics" else CodeGenerationConfig()
    return ProblemSets(TrainConfig(problems=files, task=chosen))


def test_a_solution_of_mathematics_is_imitated_as_it_stands(tmp_path: Path):
    found = mathematics(tmp_path, [sum_of(1, 2, "It is \\boxed{3}.")], [sum_of(5, 6)]).demonstrations()
    assert [(each.response, each.messages[0]["content"]) for each in found] == [("It is \\boxed{3}.", "1 + 2?")]


def test_problems_with_equal_answers_differ_by_their_statements(tmp_path: Path):
    assert mathematics(tmp_path, [sum_of(1, 2)], [sum_of(0, 3)]).heldout[0].id == "0+3"
    with pytest.raises(InputError, match=r"problems\.heldout: '1\+2' has the same tests as a problem of"):
        mathematics(tmp_path, [sum_of(1, 2)], [sum_of(1, 2)])


def test_problems_of_another_task_are_an_error(tmp_path: Path):
    program = problem(1)
    with pytest.raises(
        ConfigError, match=r"^problems\.train = .*problem '1' has tests of kind 'stdin', which are not "
    ):
        mathematics(tmp_path, [program], [sum_of(1, 2)])
    with pytest.raises(ConfigError, match=r"^problems\.heldout = .*Fix: task\.name=code_generation, or leave"):
        mathematics(tmp_path, [sum_of(1, 2)], [program])
    with pytest.raises(ConfigError, match=r"problem '1\+2' has tests of kind 'answer'.*Fix: task\.name=mathematics"):
        mathematics(tmp_path, [sum_of(1, 2)], [], task="code_generation")
