"""Records of public data sets as problems with checks; the data lie in the folder that AUTOCLAVE_DATA names."""

from __future__ import annotations

import ast
import builtins
import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from autoclave.core import CheckTests, Problem

DATA = os.environ.get("AUTOCLAVE_DATA", "")
NEEDS_DATA = pytest.mark.skipif(not DATA, reason="AUTOCLAVE_DATA is not set")


def records(name: str) -> list[dict[str, Any]]:
    """The records of a file; the test is skipped when it is not there."""
    path = Path(DATA) / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_problem(
    id: str, entry_point: str, source: str, *, invocation: str = "", preamble: str = "", profile: str = "plain"
) -> Problem:
    """By default Python as it comes: what a check uses beyond the builtins is imported by it or by its preamble."""
    tests = CheckTests("check", entry_point, source, invocation, preamble)
    return Problem("", tests, id=id, profile=profile)


def human_eval(record: dict[str, Any]) -> Problem:
    """The prompt up to the entry point (imports, helper functions) is the preamble."""
    preamble = record["prompt"].partition(f"def {record['entry_point']}(")[0]
    return check_problem(
        record["task_id"],
        record["entry_point"],
        record["test"],
        invocation=f"check({record['entry_point']})",
        preamble=preamble,
    )


def human_eval_without_prompt(record: dict[str, Any]) -> Problem:
    """For graders that run a whole program after the prompt's imports: it must bring the helper functions itself."""
    imports = re.findall(r"^(?:from|import) .*", record["prompt"], re.MULTILINE)
    return replace(
        problem := human_eval(record), tests=replace(cast("CheckTests", problem.tests), preamble="\n".join(imports))
    )


def human_eval_pack(record: dict[str, Any]) -> Problem:
    """The test calls its check itself."""
    preamble = record["prompt"].partition(f"def {record['entry_point']}(")[0]
    return check_problem(record["task_id"], record["entry_point"], record["test"], preamble=preamble)


def mbpp(record: dict[str, Any]) -> Problem:
    """Setup code and asserts, one after the other; the entry point is the first function they call by name."""
    asserts = [*record["test_list"], *record["challenge_test_list"]]
    source = "\n".join([record["test_setup_code"], *asserts]).replace("\r\n", "\n")
    return check_problem(f"mbpp/{record['task_id']}", _tested_name("\n".join(asserts)), source)


def _tested_name(source: str) -> str:
    """The first name that is called; one of a builtin only if there is no other, for some functions are named so."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [
        (node.func.id in dir(builtins), node.lineno, node.col_offset, node.func.id)
        for node in calls
        if isinstance(node.func, ast.Name)
    ]
    return min(names)[-1]


def leet_code(record: dict[str, Any]) -> Problem:
    """The prompt (imports, helper classes) is the preamble; `Solution().f` is written `Solution.f`."""
    return check_problem(
        record["task_id"],
        record["entry_point"].replace("()", ""),
        record["test"],
        invocation="check(candidate)",
        preamble=record["prompt"],
    )


def rllm_leet_code(record: dict[str, Any], number: int) -> Problem:
    """A script of asserts that makes its own `Solution()`; programs count on the imports of the `lcb` profile."""
    source = record["tests"]["functional"]
    found = re.search(r"Solution\(\)\.(\w+)", source)
    assert found
    return check_problem(f"rllm/{number}", f"Solution.{found[1]}", source, profile="lcb")
