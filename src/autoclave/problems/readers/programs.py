"""Sets that ask what a call returns, read as programs to run: the program is a solution, the call its test."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import Any, cast

from autoclave.core import CallCase, CallTests
from autoclave.problems.curation.python_source import UNREADABLE, tree_of
from autoclave.problems.readers.answers import cruxeval
from autoclave.problems.readers.livecodebench import livecodebench_execution
from autoclave.problems.readers.row import ReadProblem, Row, UnusableRow


def livecodebench_execution_program(row: Row) -> ReadProblem:
    """The program of a row of LiveCodeBench's code execution."""
    return _as_program(livecodebench_execution(row), row.text("code"), row.text("input"), row.text("output"))


def cruxeval_program(row: Row) -> ReadProblem:
    """The program of a row of CRUXEval."""
    return _as_program(cruxeval(row), row.text("code"), f"f({row.text('input')})", row.text("output"))


def _as_program(found: ReadProblem, code: str, call: str, output: str) -> ReadProblem:
    try:
        name, arguments = _called(code, ast.parse(call.strip(), mode="eval").body)
        expected: Any = ast.literal_eval(output.strip())
    except UNREADABLE as error:
        raise UnusableRow("malformed", f"{call[:80]!r}: {error}") from None
    if not _is_plain(arguments):
        raise UnusableRow("not_plain", f"{call[:80]!r}: arguments must be JSON values, since tests are")
    tests = CallTests("call", name, [CallCase(arguments, expected if _is_plain(expected) else None)])
    return replace(found, problem=replace(found.problem, tests=tests, solutions=[code.strip("\n")]))


def _called(code: str, call: ast.expr) -> tuple[str, list[Any]]:
    """Return the name of the function that is called, and the arguments by position.

    Raises:
        ValueError: another expression, or arguments that are no literals of parameters of the function.
    """
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("must be a call of a function")
    given = dict(enumerate(map(ast.literal_eval, call.args)))
    tree, name = tree_of(code), call.func.id
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    function = next((node for node in reversed(functions) if node.name == name), None)
    if function is None:
        raise ValueError(f"the program has no function {name}")
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for keyword in call.keywords:
        given[names.index(keyword.arg or "")] = ast.literal_eval(keyword.value)
    defaults = dict(enumerate(function.args.defaults, len(names) - len(function.args.defaults)))
    for place in range(max(given, default=-1) + 1):
        if place not in given:
            given[place] = ast.literal_eval(cast("ast.expr", defaults.get(place)))
    return name, [given[place] for place in sorted(given)]


def _is_plain(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return False
