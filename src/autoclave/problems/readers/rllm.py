"""DeepCoder-Preview and rLLM's own files, whose `tests` have the forms of other sets; SYNTHETIC-1 and its like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from autoclave.core import CheckTests, Problem
from autoclave.core.json import shown
from autoclave.core.leetcode import NAMES, NODES
from autoclave.core.problem import Tests
from autoclave.problems.readers.cases import columns_as_tests, records_as_tests
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow, parsed, texts, unix_lines
from autoclave.problems.readers.statements import difficulty, python_of, site, without_prompt, without_starter_code

_METHOD = re.compile(r"\bSolution\(\)\.(\w+)")


def rllm(row: RawRow) -> ReadProblem:
    """A row with tests as columns (taco, code_contests), records (primeintellect, lcbv5, codeforces) or a check."""
    statement, shown_code = without_starter_code(without_prompt(row.text("problem")))
    starter_code = row.text_or("", "starter_code") or shown_code
    metadata = row.struct("metadata")
    solutions = _solutions(row.fields.get("solutions"))
    name = metadata.text_or("", "func_name", "fn_name")
    key = row.text_or("", "cf_id", "id", "problem_id")
    tests = _tests(row.value("tests"), starter_code, solutions, name)
    problem = Problem(
        statement,
        tests,
        id=f"codeforces/{key}" if row.has("cf_id") else key,
        starter_code=starter_code,
        solutions=solutions,
        profile="leetcode" if isinstance(tests, CheckTests) else "lcb",
        source="codeforces" if row.has("cf_id") else metadata.text_or("", "source", "platform"),
        difficulty=difficulty(metadata.text_or("", "difficulty")),
    )
    return ReadProblem(problem, key=key, url=metadata.text_or("", "url", "problem_url"))


def verifiable(row: RawRow) -> ReadProblem:
    """A row of verifiable-coding-problems, its Python export by open-r1, or SYNTHETIC-1, with tests as records.

    Raises:
        UnusableRow: the row is not a coding task (`not_code`).
    """
    if (kind := row.text_or("verifiable_code", "task_type")) != "verifiable_code":
        raise UnusableRow("not_code", f"task_type = {shown(kind)}")
    info = row.struct("verification_info")
    if not info.fields:
        raise UnusableRow("no_tests", "verification_info is empty")
    metadata = row.struct("metadata")
    starter_code = metadata.text_or("", "starter_code")
    solution = python_of(row.text_or("", "gold_standard_solution"))
    solutions = [solution] if solution else []
    url = metadata.text_or("", "problem_url", "url")
    problem = Problem(
        without_prompt(row.text("problem_statement", "prompt")),
        records_as_tests(info.value("test_cases"), starter_code, solutions, info.text_or("", "fn_name")),
        id=row.text_or("", "problem_id"),
        starter_code=starter_code,
        solutions=solutions,
        source=site(url) or row.text_or("", "source"),
        difficulty=difficulty(metadata.text_or("", "difficulty")),
    )
    return ReadProblem(problem, url=url, title=metadata.text_or("", "title", "name"))


def _tests(value: Any, starter_code: str, solutions: Sequence[str], name: str) -> Tests:
    tests = parsed(value, "tests")
    if isinstance(tests, list):
        return records_as_tests(tests, starter_code, solutions, name)
    if isinstance(tests, Mapping) and "functional" in tests:
        return _check(str(cast("Mapping[str, Any]", tests)["functional"]))
    return columns_as_tests(tests, starter_code, solutions, name)


def _check(source: str) -> CheckTests:
    """Return the check of a script of assertions that creates its own `Solution`."""
    source = unix_lines(source)
    if not source.strip():
        raise UnusableRow("no_tests", "tests.functional is empty")
    found = _METHOD.search(source)
    if not found:
        raise UnusableRow("no_function", "tests.functional does not call a method of Solution()")
    preamble = NODES if any(name in source for name in NAMES) else ""  # the check gets objects of these classes
    return CheckTests("check", f"Solution.{found[1]}", source, "", preamble)


def _solutions(value: Any) -> list[str]:
    """Return the programs of one string, a list, or a list in a string; with or without fences."""
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(UnusableRow):  # a program may begin with a list
            value = parsed(value, "solutions")
    sources = texts([value] if isinstance(value, str) else cast("list[Any]", value or []))
    return [program for program in map(python_of, sources) if program]
