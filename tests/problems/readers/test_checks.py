"""Test code that readers write, judged: the rules of EvalPlus, and what tests use of pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, Program
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.problems.candidate import Candidate

from .test_layouts import KODCODE


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def status(judge: LocalJudge, found: Candidate, source: str) -> str:
    return str(judge.submit(JudgeJob(found.problem, Program(source))).result(60).status)


def plus(read, name: str, body: str, inputs: list[list[object]], margin: float = 0) -> Candidate:
    return read(
        "humaneval_plus",
        task_id="HumanEval/1",
        prompt=f"def {name}(x):\n",
        canonical_solution=f"    return {body}\n",
        entry_point=name,
        base_input=inputs[:1],
        plus_input=inputs[1:],
        atol=margin,
    )


@pytest.mark.parametrize(
    ("name", "reference", "inputs", "margin", "program", "expected"),
    [
        ("f", "x + 1", [[1], [2**70]], 0, "x + 1", "accepted"),
        ("f", "x + 1", [[1], [5]], 0, "2", "wrong_answer"),
        ("f", "x / 3", [[1.0]], 0, "x / 3 + 1e-8", "accepted"),
        ("f", "x / 3", [[1.0]], 0, "x / 3 + 1e-3", "wrong_answer"),
        ("f", "x / 3", [[1.0]], 0.01, "x / 3 + 1e-3", "accepted"),
        ("f", "[x / 3, x]", [[1.0]], 0, "[x / 3 + 1e-8, x]", "accepted"),
        ("f", "[x / 3, x]", [[1.0]], 0, "[x / 3 + 1e-8]", "wrong_answer"),
        ("f", "x", [[float("inf")]], 0, "x", "accepted"),
        ("f", "x", [[[3, 1]]], 0, "x.sort() or x", "wrong_answer"),
        ("find_char_long", "['a', 'b']", [[1]], 0, "['b', 'a']", "accepted"),
        ("check_str", "object() if x else None", [[1], [0]], 0, "bool(x)", "accepted"),
        ("check_str", "object() if x else None", [[1], [0]], 0, "True", "wrong_answer"),
        ("find_zero", "-x[0] / x[1]", [[[2, 4]]], 1e-4, "-0.50001", "accepted"),
        ("find_zero", "-x[0] / x[1]", [[[2, 4]]], 1e-4, "-0.6", "wrong_answer"),
    ],
)
def test_results_are_compared_with_those_of_the_reference(
    read, judge, name, reference, inputs, margin, program, expected
):
    found = plus(read, name, reference, inputs, margin)
    assert status(judge, found, f"def {name}(x):\n    return {program}\n") == expected


def test_a_program_cannot_take_the_place_of_the_reference(read, judge):
    found = plus(read, "f", "x + 1", [[1]])
    assert status(judge, found, "_reference = f = lambda x: 7\n_ARGUMENTS = []\ncheck = print") == "wrong_answer"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a + b", "accepted"),
        ("round(a + b, 3) if b is not None else a + b", "accepted"),  # approximately
        ("a + b + 1e-3 if b is not None else a + b", "wrong_answer"),
        ("a + b if b is not None else 0", "wrong_answer"),  # raises nothing
        ("a + b if b is not None else [][0]", "runtime_error"),  # raises something else
    ],
)
def test_tests_for_pytest_run_without_it(read, judge, body, expected):
    found = read("kodcode", **KODCODE)
    assert status(judge, found, f"def add(a, b):\n    return {body}\n") == expected


def test_tests_that_import_numpy_find_it(read, judge):
    row = {
        "task_id": "HumanEval/7",
        "prompt": "def add(a, b):\n",
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "test": "import numpy as np\n\ndef check(candidate):\n    np.testing.assert_allclose(candidate(1, 2), 3)\n",
    }
    found = read("humaneval", **row)
    assert found.problem.profile == "plain_numpy"
    assert status(judge, found, found.problem.solutions[0]) == "accepted"
    assert status(judge, found, "def add(a, b):\n    return a") == "wrong_answer"
    asserts = {"task_id": 2, "text": "Add.", "test_list": ["assert add(1, 2) == 3"]}
    assert read("mbpp", **asserts, code="import numpy as np\ndef add(a, b): ...").problem.profile == "plain_numpy"
    assert read("mbpp", **asserts, code="def add(a, b): ...").problem.profile == "plain"
