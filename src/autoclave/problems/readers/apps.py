"""APPS, TACO, and the sets made of them: tests are columns of inputs and outputs."""

from collections.abc import Mapping
from typing import Any, cast

from autoclave.core import Problem
from autoclave.problems.readers.cases import columns_as_tests
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow, parsed, texts
from autoclave.problems.readers.statements import day, difficulty, megabytes, seconds, site, without_prompt


def apps(row: RawRow) -> ReadProblem:
    """APPS as a table, or a problem folder of it (see `raw_files`)."""
    return taco(_of_folder(row) if row.has("files") else row)


def eurus2(row: RawRow) -> ReadProblem:
    """Code rows of Eurus-2-RL-Data, with the columns of verl and without solutions.

    Raises UnusableRow: the row is of mathematics (`not_code`).
    """
    if row.text_or("code", "ability") != "code":
        raise UnusableRow("not_code", f"ability = {row.text_or('', 'ability')!r}")
    messages = cast("list[Mapping[str, Any]]", [one for one in row.list("prompt") if isinstance(one, Mapping)])
    statements = [str(one.get("content", "")) for one in messages if one.get("role") == "user"]
    if not statements:
        raise UnusableRow("no_statement", "the prompt has no message of a user")
    tests = columns_as_tests(row.struct("reward_model").value("ground_truth"), "", ())
    extra = row.struct("extra_info")
    id = "-".join(part for part in (extra.text_or("", "split"), extra.text_or("", "index")) if part)
    problem = Problem(
        without_prompt(statements[-1]), tests, id=id and f"eurus2/{id}", source=row.text_or("", "data_source")
    )
    return ReadProblem(problem)


def _of_folder(row: RawRow) -> RawRow:
    files = row.struct("files")
    fields: dict[str, Any] = {
        "problem_id": row.text_or("", "problem"),
        "question": files.text("question.txt"),
        "input_output": files.fields.get("input_output.json"),
        "solutions": files.fields.get("solutions.json"),
        "starter_code": files.text_or("", "starter_code.py"),
    }
    metadata = files.struct("metadata.json").fields
    return RawRow(row.place, fields | {name: metadata[name] for name in ("difficulty", "url") if name in metadata})


def taco(row: RawRow) -> ReadProblem:
    """TACO and TACO-verified. Skills and topics become tags."""
    starter_code = row.text_or("", "starter_code")
    solutions = _solutions(row)
    if "input_output" in row.fields and not row.fields["input_output"]:
        raise UnusableRow("no_tests", "input_output is empty")
    tests = columns_as_tests(row.value("input_output"), starter_code, solutions)
    url = row.text_or("", "url")
    number = row.text_or("", "problem_id", "id")
    problem = Problem(
        without_prompt(row.text("question")),
        tests,
        id=f"apps/{int(number):04d}" if number.isdigit() else number,
        starter_code=starter_code,
        solutions=solutions,
        time_limit_s=seconds(row.text_or("", "time_limit")),
        memory_limit_mb=megabytes(row.text_or("", "memory_limit")),
        source=row.text_or("", "source") or site(url),
        released=day(row.text_or("", "date")),
        difficulty=difficulty(row.text_or("", "difficulty")),
        tags=sorted({*texts(row.list_or_empty("tags")), *texts(row.list_or_empty("skill_types"))}),
    )
    return ReadProblem(problem, url=url, title=row.text_or("", "name"))


def _solutions(row: RawRow) -> list[str]:
    """Return the programs; an empty list if the field is missing or empty."""
    value = row.fields.get("solutions")
    if isinstance(value, str) and value.strip():
        value = parsed(value, "solutions")
    return texts(cast("list[Any]", value)) if isinstance(value, list) else []
