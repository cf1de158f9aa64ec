"""SYNTHETIC-1 and verifiable-coding-problems: tests are a list of records, the solution stands in a fence."""

from __future__ import annotations

from autoclave.core import Problem
from autoclave.core.json import shown
from autoclave.problems.readers.cases import records_as_tests
from autoclave.problems.readers.row import ReadProblem, Row, UnusableRow
from autoclave.problems.readers.statements import difficulty, python_of, site, without_prompt


def verifiable(row: Row) -> ReadProblem:
    """A row of verifiable-coding-problems, its Python export by open-r1, or SYNTHETIC-1.

    Raises:
        UnusableRow: it is no task of code (`not_code`).
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
