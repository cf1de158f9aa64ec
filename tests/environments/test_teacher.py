"""Demonstrations are well-formed, marked right or wrong, and wrong at the configured rates."""

from __future__ import annotations

import ast
import copy
from itertools import islice
from typing import Any

import pytest

from autoclave.config.problems import SyntheticConfig
from autoclave.config.training import SftConfig
from autoclave.core import CallTests, StdinTests
from autoclave_environments.synthetic import demonstrated_programs, demonstrations

_SMALL = SyntheticConfig(train=20, validation=5, heldout=200)


def test_the_share_of_right_ones_hardly_depends_on_the_seed():
    shown = demonstrations(_SMALL.model_copy(update={"seed": 5}), SftConfig(demonstrations=3000))
    assert sum(demonstration.is_right for demonstration in shown) / len(shown) == pytest.approx(0.58, abs=0.05)


def test_a_teacher_without_errors_is_always_right():
    sft = SftConfig(demonstrations=500, error_rate=0.0, misunderstood_share=0.0)
    assert all(demonstration.is_right for demonstration in demonstrations(_SMALL, sft))


def test_a_misunderstood_operation_is_always_mistaken_in_the_same_way():
    sft = SftConfig(demonstrations=3000, error_rate=0.0, misunderstood_share=1.0, misunderstood_error_rate=1.0)
    written: dict[str, set[str]] = {}
    for demonstration in demonstrations(_SMALL, sft):
        written.setdefault(demonstration.task_id, set()).add(demonstration.response)
    assert any(task_id.count(".") == 4 for task_id in written)  # depth 1, of which some come up again
    assert all(len(responses) == 1 for responses in written.values())


def test_intermediate_values_end_with_the_final_value():
    for demonstrated in islice(demonstrated_programs(_SMALL, SftConfig(), misreading_rate=0.3), 300):
        tests = demonstrated.problem.tests
        for test, (case, working) in enumerate(zip(tests.cases, demonstrated.workings, strict=True)):
            if not working:  # the only operation was forgotten
                continue
            name, _, value = working[-1].partition(": ")
            assert final_value(demonstrated.read_on(test), tests, case, name) == ast.literal_eval(value)


def test_operations_are_overlooked_at_the_misreading_rate():
    overlooked = told = 0
    for demonstrated in islice(demonstrated_programs(_SMALL, SftConfig(error_rate=0), misreading_rate=0.25), 300):
        for test, _ in enumerate(demonstrated.problem.tests.cases):
            body, read = (program.splitlines()[1:-1] for program in (demonstrated.program, demonstrated.read_on(test)))
            overlooked += len(body) - len(read)
            told += len(body)
    assert 0.15 < overlooked / told < 0.3  # what stands before the operations is not overlooked


def final_value(program: str, tests: CallTests | StdinTests, case: Any, name: str) -> Any:
    """The value of a variable after a run, by Python itself."""
    found: dict[str, Any] = {}
    if isinstance(tests, StdinTests):
        names: dict[str, Any] = {"input": lambda: case.input.rstrip("\n"), "print": lambda *_: None}
        exec(program, names)
        return names[name]
    lines = program.splitlines()
    assert lines[-1].startswith("    return ")
    exec("\n".join([*lines[:-1], f"    return {name}"]), found)
    return found["f"](*copy.deepcopy(case.arguments))
