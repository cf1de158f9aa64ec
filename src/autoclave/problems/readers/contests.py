"""Sets of contest problems: CodeContests, Codeforces, DeepCoder-Preview and rLLM's files, SYNTHETIC-1 and its like."""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from autoclave.core import CheckTests, Problem
from autoclave.core.json import shown
from autoclave.core.leetcode import NAMES, NODES
from autoclave.core.problem import Tests
from autoclave.problems.curation.python_source import tree_of
from autoclave.problems.readers.cases import columns_as_tests, records_as_tests, stdin_tests
from autoclave.problems.readers.checks import profile_of, tested_function
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow, parsed, texts, unix_lines
from autoclave.problems.readers.statements import (
    LEAST_MEMORY_MB,
    difficulty,
    python_of,
    site,
    without_prompt,
    without_starter_code,
)

_METHOD = re.compile(r"\bSolution\(\)\.(\w+)")
_ASSERTION = re.compile(r"^\s*(?:assert|def|import|from)\b", re.MULTILINE)


def rllm(row: RawRow) -> ReadProblem:
    """A row with tests as columns (taco, code_contests), records (primeintellect, lcbv5, codeforces) or a check."""
    statement, shown_code = without_starter_code(without_prompt(row.text("problem")))
    starter_code = row.text_or("", "starter_code") or shown_code
    metadata = row.struct("metadata")
    solutions = _solutions(row.fields.get("solutions"))
    name = metadata.text_or("", "func_name", "fn_name")
    key = row.text_or("", "cf_id", "id", "problem_id")
    tests = tests_of(row.value("tests"), starter_code, solutions, name)
    problem = Problem(
        statement,
        tests,
        id=f"codeforces/{key}" if row.has("cf_id") else key,
        starter_code=starter_code,
        solutions=solutions,
        profile=_profile(tests),
        source="codeforces" if row.has("cf_id") else metadata.text_or("", "source", "platform"),
        difficulty=difficulty(metadata.text_or("", "difficulty")),
    )
    return ReadProblem(problem, key=key, url=metadata.text_or("", "url", "problem_url"))


def verifiable(row: RawRow) -> ReadProblem:
    """A row of verifiable-coding-problems, its Python export by open-r1, or SYNTHETIC-1, with tests as records.

    Raises UnusableRow: the row is not a coding task (`not_code`).
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


def tests_of(value: Any, starter_code: str, solutions: Sequence[str], name: str) -> Tests:
    """Return tests in any form of these sets: columns, records, assertions in a list or in one script.

    Raises UnusableRow: another form, no tests, or unsuitable values.
    """
    if isinstance(value, str) and _ASSERTION.search(value) and not value.lstrip().startswith(("{", "[")):
        return _check(value)
    tests = parsed(value, "tests")
    if isinstance(tests, Mapping):
        fields = cast("Mapping[str, Any]", tests)
        scripts = [fields[form] for form in ("functional", "assert_case") if fields.get(form) is not None]
        tests = scripts[0] if scripts else tests
        if isinstance(tests, str):
            return _check(tests)
    if isinstance(tests, list):
        parts = cast("list[Any]", tests)
        if parts and all(isinstance(one, str) for one in parts):
            return _check("\n".join(parts))
        return records_as_tests(parts, starter_code, solutions, name)
    return columns_as_tests(tests, starter_code, solutions, name)


def _check(source: str) -> CheckTests:
    """Return the check of a script of assertions, which calls a function or creates its own `Solution`."""
    source = unix_lines(source)
    if not source.strip():
        raise UnusableRow("no_tests", "the script of assertions is empty")
    if tree_of(source) is None:
        raise UnusableRow("malformed", "the assertions are not valid Python")
    found = _METHOD.search(source)
    if not found and "Solution(" in source:
        raise UnusableRow("no_function", "the assertions do not call a method of Solution()")
    preamble = NODES if any(name in source for name in NAMES) else ""  # the check gets objects of these classes
    return CheckTests("check", f"Solution.{found[1]}" if found else tested_function(source), source, "", preamble)


def _profile(tests: Tests) -> str:
    if not isinstance(tests, CheckTests):
        return "lcb"
    return "leetcode" if tests.entry_point.startswith("Solution.") else profile_of(tests)


def _solutions(value: Any) -> list[str]:
    """Return the programs of one string, a list, or a list in a string; with or without fences."""
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(UnusableRow):  # a program may begin with a list
            value = parsed(value, "solutions")
    sources = texts([value] if isinstance(value, str) else cast("list[Any]", value or []))
    return [program for program in map(python_of, sources) if program]


_SITES = ("", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_DIFFICULTIES = (
    *("unknown_difficulty", "easy", "medium", "hard", "harder", "hardest", "external"),
    *"ABCDEFGHIJKLMNOPQRSTUV",
)
_PYTHON3 = (3, "PYTHON3")


def code_contests(row: RawRow) -> ReadProblem:
    """CodeContests, and SandboxFusion's export of it. Only solutions in Python 3 are kept.

    Raises UnusableRow: the program would have to read or write files (`uses_files`).
    """
    if row.has("content"):
        return _sandbox_fusion(row)
    if row.has("problem"):
        return rllm(row)
    for name in ("input_file", "output_file"):
        if file := row.text_or("", name):
            raise UnusableRow("uses_files", f"{name} = {file!r}: must be standard input and output")
    cases: list[tuple[Any, Any]] = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        tests = row.struct(name).fields
        if tests:
            inputs, outputs = (cast("list[Any]", tests.get(field) or []) for field in ("input", "output"))
            if len(inputs) != len(outputs):
                raise UnusableRow("uneven_tests", f"{name}: {len(inputs)} inputs and {len(outputs)} outputs")
            cases += zip(inputs, outputs, strict=True)
    site = _named(row.fields.get("source"), _SITES)
    contest, index = row.text_or("", "cf_contest_id"), row.text_or("", "cf_index")
    title = row.text_or("", "name")
    key = f"codeforces/{contest}/{index}" if contest not in ("", "0") and index else ""
    memory = row.fields.get("memory_limit_bytes")
    problem = Problem(
        row.text("description"),
        stdin_tests(dict.fromkeys((str(one), str(other)) for one, other in cases)),
        id=f"code_contests/{title}" if title else "",
        solutions=_python_solutions(row.fields.get("solutions")),
        time_limit_s=_limit_s(row.fields.get("time_limit")),
        memory_limit_mb=max(LEAST_MEMORY_MB, memory >> 20) if isinstance(memory, int) and memory > 0 else None,
        source=site,
        difficulty=_named(row.fields.get("difficulty"), _DIFFICULTIES),
        tags=sorted(texts(row.list_or_empty("cf_tags"))),
    )
    return ReadProblem(problem, key=key, title="" if title.isdigit() else title.partition(". ")[2] or title)


def codeforces(row: RawRow) -> ReadProblem:
    """Codeforces: open-r1's set, or rLLM's files of 408 evaluation problems.

    Raises UnusableRow: the problem is interactive, uses files, or needs a special judge (`special_judge`).
    """
    if row.has("problem"):
        return rllm(row)
    if row.text_or("", "interaction_format"):
        raise UnusableRow("interactive", "the problem is interactive")
    if (mode := row.text_or("stdio", "input_mode")) != "stdio":
        raise UnusableRow("uses_files", f"input_mode = {mode!r}: must be stdio")
    if row.has("generated_checker"):
        raise UnusableRow("special_judge", "several answers are right, and only a special judge can decide")
    tests = [*row.list_or_empty("examples"), *row.list_or_empty("official_tests")]
    names = {"": "description", "Input": "input_format", "Output": "output_format", "Note": "note"}
    parts = [(heading, row.text_or("", name).strip()) for heading, name in names.items()]
    samples = [
        f"Example\n\nInput\n{one.get('input', '').strip()}\n\nOutput\n{one.get('output', '').strip()}"
        for one in row.list_or_empty("examples")
        if isinstance(one, Mapping)
    ]
    written = [f"{heading}\n\n{text}" if heading else text for heading, text in parts if text]
    contest, index = row.text_or("", "contest_id"), row.text_or("", "index")
    start = row.fields.get("contest_start")
    limit = row.fields.get("memory_limit")
    time_limit = row.fields.get("time_limit")
    problem = Problem(
        "\n\n".join([*written[:3], *samples, *written[3:]]),
        records_as_tests(tests, "", ()),
        id=f"codeforces/{contest}/{index}" if contest and index else "",
        time_limit_s=float(time_limit) if isinstance(time_limit, int | float) and time_limit > 0 else None,
        memory_limit_mb=max(LEAST_MEMORY_MB, round(limit)) if isinstance(limit, int | float) and limit > 0 else None,
        source="codeforces",
        released=datetime.datetime.fromtimestamp(start, datetime.UTC).date() if isinstance(start, int) else None,
        difficulty=row.text_or("", "rating"),
        tags=sorted(texts(row.list_or_empty("tags"))),
    )
    return ReadProblem(problem, key=f"codeforces/{contest}/{index}", title=row.text_or("", "title"))


def _sandbox_fusion(row: RawRow) -> ReadProblem:
    labels = row.struct("labels")
    cases = [
        (_inner(case, "input", "stdin"), _inner(case, "output", "stdout"))
        for case in cast("list[Any]", row.list("test"))
        if isinstance(case, Mapping)
    ]
    problem = Problem(
        row.text("content"),
        stdin_tests(cases),
        id=f"code_contests/{row.text_or('', 'id')}" if row.has("id") else "",
        source=labels.text_or("", "source").casefold(),
        difficulty=difficulty(labels.text_or("", "difficulty")),
    )
    return ReadProblem(problem, title=labels.text_or("", "name"))


def _inner(case: Mapping[str, Any], name: str, stream: str) -> Any:
    value = case.get(name)
    return cast("Mapping[str, Any]", value).get(stream, "") if isinstance(value, Mapping) else value


def _python_solutions(value: Any) -> list[str]:
    """Return the solutions in Python 3, from columns or records."""
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, Mapping):
        columns = cast("Mapping[str, Sequence[Any]]", value)
        pairs = list(zip(columns.get("language") or [], columns.get("solution") or [], strict=False))
    else:
        records = cast("list[Mapping[str, Any]]", value or [])
        pairs = [(one.get("language"), one.get("solution")) for one in records]
    return texts([source for language, source in pairs if language in _PYTHON3])


def _named(value: Any, names: Sequence[str]) -> str:
    """Return the name of a member of an enumeration, given by number or name."""
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else ""
    return str(value).casefold() if isinstance(value, str) else ""


def _limit_s(value: Any) -> float | None:
    if not isinstance(value, Mapping):
        return None
    parts = cast("Mapping[str, Any]", value)
    return float(parts.get("seconds") or 0) + float(parts.get("nanos") or 0) / 1e9 or None
