"""Sets that ask for an answer, not for a program: CRUXEval (also the arguments of a call), AIME and MATH."""

from __future__ import annotations

import re

from autoclave.core import AnswerTests, CheckTests, Problem
from autoclave.problems.readers.row import ReadProblem, Row, UnusableRow

_BOXED = re.compile(r"\\boxed\s*\{|\\fbox\s*\{")


def cruxeval(row: Row) -> ReadProblem:
    """What a call of `f` returns."""
    call, code = f"f({row.text('input')})", row.text("code").strip("\n")
    statement = f"```python\n{code}\n```\n\nWhat does `{call}` return?"
    id = row.text_or("", "id")
    problem = Problem(statement, AnswerTests("answer", row.text("output"), "value"), id=f"cruxeval/{id}" if id else "")
    return ReadProblem(problem, key=id)


def cruxeval_input(row: Row) -> ReadProblem:
    """With which arguments `f` returns a value. What is judged is a function `predicted` that makes the call."""
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


def aime(row: Row) -> ReadProblem:
    """Problems of the AIME, whose answers are integers."""
    parts = [row.text_or("", name) for name in ("year", "aime_number", "problem_number")]
    id = row.text_or("", "id", "ID") or "-".join(part for part in parts if part)
    answer = row.text_or("", "answer", "Answer").strip()
    return _mathematics(row, f"aime/{id}" if id else "", answer, "aime")


def mathematics(row: Row) -> ReadProblem:
    """MATH, as one file per problem or in tables: the answer stands in a box at the end of the solution."""
    id = row.text_or("", "unique_id", "id")
    answer = row.text_or("", "answer").strip() or _boxed(row.text_or("", "solution"))
    return _mathematics(row, f"math/{id}" if id else "", answer, "math")


def _mathematics(row: Row, id: str, answer: str, source: str) -> ReadProblem:
    if not answer:
        raise UnusableRow("no_tests", "there is no answer")
    level = row.text_or("", "level", "difficulty")
    subject = row.text_or("", "subject", "type")
    solution = row.text_or("", "solution")
    problem = Problem(
        row.text("problem", "Problem", "question", "prompt"),
        AnswerTests("answer", answer, "math"),
        id=id,
        solutions=[solution] if _BOXED.search(solution) else [],  # without a box it does not say its answer
        source=source,
        difficulty=level,
        tags=[subject] if subject else [],
    )
    return ReadProblem(problem, key=id)


def _boxed(solution: str) -> str:
    r"""What stands in the last `\boxed{...}`."""
    found = list(_BOXED.finditer(solution))
    if not found:
        return ""
    depth, start = 1, found[-1].end()
    for place, sign in enumerate(solution[start:], start=start):
        depth += (sign == "{") - (sign == "}")
        if not depth:
            return solution[start:place].strip()
    return ""
