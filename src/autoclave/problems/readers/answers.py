"""Sets whose problems have an answer, not a program: CRUXEval (also the arguments of a call), AIME and MATH."""

import ast
import json
import re
from dataclasses import replace
from typing import Any, cast

from autoclave.core import AnswerTests, CallCase, CallTests, CheckTests, Problem
from autoclave.problems.curation.python_source import UNREADABLE, tree_of
from autoclave.problems.readers.livecodebench import livecodebench_execution
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow

_BOXED = re.compile(r"\\boxed\s*\{|\\fbox\s*\{")


def cruxeval(row: RawRow) -> ReadProblem:
    """Return the question for the return value of a call of `f`."""
    call, code = f"f({row.text('input')})", row.text("code").strip("\n")
    statement = f"```python\n{code}\n```\n\nWhat does `{call}` return?"
    id = row.text_or("", "id")
    problem = Problem(statement, AnswerTests("answer", row.text("output"), "value"), id=f"cruxeval/{id}" if id else "")
    return ReadProblem(problem, key=id)


def cruxeval_input(row: RawRow) -> ReadProblem:
    """Return the question for arguments with which `f` returns a value. A function `predicted` makes the call."""
    output, code = row.text("output"), row.text("code").strip("\n")
    statement = (
        f"```python\n{code}\n```\n\nWith which arguments does `f` return the following?\n\n```python\n{output}\n```"
    )
    source = f"def check(candidate):\n    assert candidate() == ({output})"
    id = row.text_or("", "id")
    problem = Problem(
        statement,
        CheckTests("check", "predicted", source, "check(candidate)", f"{code}\n"),
        id=f"cruxeval_input/{id}" if id else "",
        solutions=[f"def predicted():\n    return f({row.text('input')})\n"] if row.has("input") else [],
        profile="plain",
    )
    return ReadProblem(problem, key=id)


def aime(row: RawRow) -> ReadProblem:
    """Problems of the AIME, whose answers are integers."""
    parts = [row.text_or("", name) for name in ("year", "aime_number", "problem_number")]
    id = row.text_or("", "id", "ID") or "-".join(part for part in parts if part)
    answer = row.text_or("", "answer", "Answer").strip()
    return _mathematics(row, f"aime/{id}" if id else "", answer, "aime")


def mathematics(row: RawRow) -> ReadProblem:
    """MATH, as one file per problem or in tables: the answer is in a box at the end of the solution."""
    id = row.text_or("", "unique_id", "id")
    answer = row.text_or("", "answer").strip() or _boxed(row.text_or("", "solution"))
    return _mathematics(row, f"math/{id}" if id else "", answer, "math")


def _mathematics(row: RawRow, id: str, answer: str, source: str) -> ReadProblem:
    if not answer:
        raise UnusableRow("no_tests", "the answer is missing")
    level = row.text_or("", "level", "difficulty")
    subject = row.text_or("", "subject", "type")
    solution = row.text_or("", "solution")
    problem = Problem(
        row.text("problem", "Problem", "question", "prompt"),
        AnswerTests("answer", answer, "math"),
        id=id,
        solutions=[solution] if _BOXED.search(solution) else [],  # without a box the answer is missing
        source=source,
        difficulty=level,
        tags=[subject] if subject else [],
    )
    return ReadProblem(problem, key=id)


def _boxed(solution: str) -> str:
    r"""Return the content of the last `\boxed{...}`."""
    found = list(_BOXED.finditer(solution))
    if not found:
        return ""
    depth, start = 1, found[-1].end()
    for place, sign in enumerate(solution[start:], start=start):
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return solution[start:place].strip()
    return ""


def livecodebench_execution_program(row: RawRow) -> ReadProblem:
    return _as_program(livecodebench_execution(row), row.text("code"), row.text("input"), row.text("output"))


def cruxeval_program(row: RawRow) -> ReadProblem:
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
    """Return the name of the function that is called, and the arguments by position."""
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
