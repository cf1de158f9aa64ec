"""LiveCodeBench: code generation, code execution, and test output prediction; and the coding tasks of LiveBench."""

import base64
import binascii
import pickletools
import zlib
from dataclasses import replace
from typing import Any

from autoclave.core import AnswerTests, Problem
from autoclave.core.errors import DataError
from autoclave.problems.readers.cases import records_as_tests
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow, parsed
from autoclave.problems.readers.statements import day, difficulty

RELEASES = {
    f"v{number}": tuple("test.jsonl" if part == 1 else f"test{part}.jsonl" for part in range(1, number + 1))
    for number in range(1, 7)
}
"""Files of each release of code generation, with 400, 511, 612, 713, 880 and 1055 problems."""


def livecodebench(row: RawRow) -> ReadProblem:
    """A problem with public and hidden tests, public ones first, and without solutions."""
    starter_code = row.text_or("", "starter_code")
    tests = [*row.list("public_test_cases"), *_hidden(row.value("private_test_cases"))]
    name = row.struct("metadata").text_or("", "func_name")
    return _read(row, records_as_tests(tests, starter_code, (), name), row.text("question_content"), starter_code)


def livebench(row: RawRow) -> ReadProblem:
    """LiveBench's coding: problems in LiveCodeBench's layout; those to complete start with the partial solution.

    Raises UnusableRow: the row is of another of its tasks (`not_code`).
    """
    task = row.text_or("LCB_generation", "task")
    if task not in ("LCB_generation", "coding_completion"):
        raise UnusableRow("not_code", f"task = {task!r}: must be LCB_generation or coding_completion")
    tests = {name: row.value(name) for name in ("public_test_cases", "private_test_cases")}
    found = livecodebench(RawRow(row.place, {**row.fields, **row.struct("original_json").fields, **tests}))
    number = row.text_or("", "question_id")
    problem = replace(
        found.problem,
        id=f"livebench/{number}" if number else found.problem.id,
        starter_code=row.text_or("", "partial_solution") or found.problem.starter_code,
        tags=[task],
    )
    return replace(found, problem=problem)


def livecodebench_execution(row: RawRow) -> ReadProblem:
    """Return the question for the return value of a call."""
    call, code = row.text("input"), row.text("code").strip("\n")
    statement = f"```python\n{code}\n```\n\nWhat does `{call}` return?"
    return _read(row, AnswerTests("answer", row.text("output"), "value"), statement, "", row.text_or("", "id"))


def livecodebench_test_output(row: RawRow) -> ReadProblem:
    """Return the question for the return value of a right solution for an input."""
    cases = row.list("test")
    if len(cases) != 1 or not isinstance(cases[0], dict):
        raise UnusableRow("wrong_type", "test must be a list of one object with input and output")
    case = RawRow(row.place, cases[0])
    arguments = ", ".join(line.strip() for line in case.text("input").split("\n") if line.strip())
    call = f"{row.text_or('f', 'function_name')}({arguments})"
    statement = f"{row.text('question_content')}\n\nWhat does `{call}` return?"
    id = f"{row.text_or('', 'question_id')}-{row.text_or('0', 'test_id')}"
    return _read(
        row, AnswerTests("answer", case.text("output"), "value"), statement, row.text_or("", "starter_code"), id
    )


def _read(row: RawRow, tests: Any, statement: str, starter_code: str, id: str = "") -> ReadProblem:
    platform, number, title = (row.text_or("", name) for name in ("platform", "question_id", "question_title"))
    slug = title if platform == "leetcode" and " " not in title else number
    problem = Problem(
        statement,
        tests,
        id=f"livecodebench/{id or number}" if id or number else "",
        starter_code=starter_code,
        source=platform,
        released=day(row.text_or("", "contest_date")),
        difficulty=difficulty(row.text_or("", "difficulty")),
    )
    return ReadProblem(
        problem, key=f"{platform}/{slug}" if platform and platform != "codeforces" else slug, title=title
    )


def _hidden(value: Any) -> list[Any]:
    """Return the hidden tests: JSON, or base64 of zlib of a pickle of JSON. The pickle is never loaded."""
    if value == "":
        return []
    if isinstance(value, str) and not value.lstrip().startswith("["):
        try:
            value = unpacked_text(value, "private_test_cases")
        except DataError as error:
            raise UnusableRow("damaged_tests", str(error)) from None
    tests = parsed(value, "private_test_cases")
    if not isinstance(tests, list):
        raise UnusableRow("wrong_type", "private_test_cases must be a list of tests")
    return tests


PACKED_BYTES_LIMIT = 512 << 20
"""Limit of unpacked bytes of one row."""

_TEXT = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_FRAMING = frozenset({"PROTO", "FRAME"})
_MEMO = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})


def unpacked_text(packed: str, where: str, limit: int = PACKED_BYTES_LIMIT) -> str:
    """Return the string in base64 of zlib of a pickle of one string.

    Raises DataError: not in this form, damaged, larger than `limit` bytes, or a pickle of anything but one string.
    """
    try:
        squeezed = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{where}: the packed tests are not base64 ({error})") from None
    return _only_text(_inflated(squeezed, where, limit), where)


def _inflated(squeezed: bytes, where: str, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(squeezed, limit + 1)
    except zlib.error as error:
        raise DataError(f"{where}: the packed tests are not zlib data ({error})") from None
    if len(plain) > limit:
        raise DataError(f"{where}: the packed tests unpack to more than {limit} bytes")
    if not stream.eof:
        raise DataError(f"{where}: the packed tests end in the middle of their zlib data")
    return plain


def _only_text(pickled: bytes, where: str) -> str:
    """Return the one string of a pickle: framing, the string, a memo entry, the end; in this order and nothing else."""
    found: str | None = None
    end = -1
    try:
        for opcode, argument, position in pickletools.genops(pickled):
            end = position or 0
            if opcode.name in _TEXT and found is None:
                found = str(argument)
            elif opcode.name in (_FRAMING if found is None else _MEMO | {"STOP"}):
                continue
            else:
                raise DataError(f"{where}: the packed tests must be one string, but their pickle has {opcode.name}")
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: the packed tests are a damaged pickle ({error})") from None
    if found is None or end != len(pickled) - 1:
        raise DataError(f"{where}: the packed tests must be one string and nothing after it")
    return found
