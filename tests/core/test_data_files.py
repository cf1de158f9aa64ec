"""Problem and programs files: what is read, and what is said of a bad line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import DataError, InputError, Problem, Submission, read_problems, read_submissions
from autoclave.core.files import read_jsonl
from autoclave.core.json import DEPTH_LIMIT
from tests import strategies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("data")


def line(**fields: Any) -> str:
    """A line of a problem file."""
    tests = {"kind": "stdin", "cases": [{"input": "1", "output": "1"}]}
    return json.dumps({"format": "autoclave-problem/1", "statement": "s", "tests": tests} | fields)


def nested(depth: int) -> str:
    """A call problem whose argument is `depth` lists around nothing."""
    text = line(tests={"kind": "call", "entry_point": "f", "cases": [{"arguments": ["HERE"], "output": 0}]})
    return text.replace('"HERE"', "[" * depth + "]" * depth)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint_about(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_problems(path))
    message = str(caught.value)
    assert message.count("\n") <= 1
    return message.removeprefix(str(path))


@settings(max_examples=25)
@given(problems=st.lists(strategies.problems(), max_size=3, unique_by=lambda problem: problem.id))
def test_a_file_of_problems_reads_as_it_was_written(folder: Path, problems: list[Problem]):
    text = "".join(json.dumps(problem.to_json()) + "\n" for problem in problems)
    assert list(read_problems(write(folder / "problems.jsonl", text))) == problems


def test_blank_lines_a_mark_of_byte_order_and_windows_line_ends_do_no_harm(tmp_path: Path):
    text = f"\ufeff{line(id='a')}\r\n\r\n   \r\n{line(id='b')}\r\n\n"
    path = write(tmp_path / "problems.jsonl", text)
    assert [problem.id for problem in read_problems(path)] == ["a", "b"]


def test_the_last_line_needs_no_line_end(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl", line(id="a"))
    assert [problem.id for problem in read_problems(path)] == ["a"]


def test_an_empty_file_has_no_problems(tmp_path: Path):
    assert list(read_problems(write(tmp_path / "problems.jsonl", ""))) == []


def test_a_packed_file_reads_like_a_plain_one(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl.gz", gzip.compress(line(id="a").encode()))
    assert [problem.id for problem in read_problems(path)] == ["a"]


def test_line_numbers_count_blank_lines(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl", "\n\n{}\n")
    assert complaint_about(path).startswith(":3: format = null")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{", ":2: not valid JSON (Expecting property name enclosed in double quotes at column 2); each line must be"),
        ("nonsense", ":2: not valid JSON (Expecting value at column 1); each line must be one JSON object"),
        ("[1]", ":2: expected a JSON object, found [1]"),
        ('"x"', ':2: expected a JSON object, found "x"'),
        ("{} {}", ":2: not valid JSON (Extra data at column 4); each line must be one JSON object"),
        ('{"id": ' + "9" * 5000 + "}", ":2: not usable JSON (Exceeds the limit (4300 digits)"),
        ("[" * 100_000, f":2: nested deeper than {DEPTH_LIMIT} levels"),
        (nested(DEPTH_LIMIT), f":2: nested deeper than {DEPTH_LIMIT} levels"),
        (line(id="a"), ':2: id = "a": already used at '),
        (line(statement="x", tests={"kind": "stdin", "cases": []}), ":2: tests.cases = []: a problem needs at least"),
        ("\x00", ":2: not valid JSON (Expecting value at column 1)"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, second: str, message: str):
    path = write(tmp_path / "problems.jsonl", f"{line(id='a')}\n{second}\n")
    assert complaint_about(path).startswith(message)


def test_bytes_that_are_not_utf_8_are_named(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl", line(id="a").encode() + b'\n{"id": "\xff"}\n')
    assert complaint_about(path) == ":2: not UTF-8 (invalid start byte at byte 8)"


def test_a_mark_of_byte_order_inside_a_file_is_an_error(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl", f"{line(id='a')}\n\ufeff{line(id='b')}\n")
    assert complaint_about(path).startswith(":2: not valid JSON")


def test_nesting_up_to_the_limit_is_read_and_has_a_digest(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl", nested(DEPTH_LIMIT - 6))  # line, tests, cases, case, arguments around it
    (problem,) = read_problems(path)
    assert len(problem.digest) == 64


def test_many_brackets_side_by_side_are_not_deep(tmp_path: Path):
    cases = [{"input": "[", "output": "]"}] * DEPTH_LIMIT
    path = write(tmp_path / "problems.jsonl", line(tests={"kind": "stdin", "cases": cases}))
    assert len(list(read_problems(path))) == 1


def test_the_good_lines_before_a_bad_one_are_read(tmp_path: Path):
    problems = read_problems(write(tmp_path / "problems.jsonl", f"{line(id='a')}\n{{\n"))
    assert next(problems).id == "a"


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_a_torn_packed_file_is_an_error(tmp_path: Path, kept: float):
    packed = gzip.compress(
        "".join(f"{line(id=str(number), statement=str(number**9))}\n" for number in range(500)).encode()
    )
    path = write(tmp_path / "problems.jsonl.gz", packed[: int(len(packed) * kept)])
    assert "damaged gzip file" in complaint_about(path)


def test_a_packed_file_with_a_flipped_byte_is_an_error(tmp_path: Path):
    packed = bytearray(gzip.compress("".join(f"{line(id=str(number))}\n" for number in range(500)).encode()))
    packed[len(packed) // 2] ^= 0xFF
    path = write(tmp_path / "problems.jsonl.gz", bytes(packed))
    with pytest.raises(DataError, match=r"problems\.jsonl\.gz:\d+: "):
        list(read_problems(path))


def test_a_plain_file_that_calls_itself_packed_is_an_error(tmp_path: Path):
    path = write(tmp_path / "problems.jsonl.gz", line())
    assert complaint_about(path).startswith(":1: damaged gzip file (Not a gzipped file")


@pytest.mark.parametrize(("name", "rule"), [("nothing.jsonl", "no such file"), (".", "is a folder; give a file")])
def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path, name: str, rule: str):
    with pytest.raises(InputError, match=rule):
        list(read_jsonl(tmp_path / name, "problem file"))


def test_a_file_of_the_operating_system_can_be_read_where_there_are_no_lines():
    assert list(read_jsonl(Path("/dev/null"))) == []


# --- Programs ------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(given_=st.lists(strategies.submissions(), max_size=3))
def test_a_file_of_programs_reads_as_it_was_written(folder: Path, given_: list[Submission]):
    path = folder / "programs.jsonl"
    lines = [
        {"problem_id": s.problem_id, "id": s.id}
        | ({"response": s.response} if s.source is None else {"source": s.source})
        for s in given_
    ]
    write(path, "".join(json.dumps(fields) + "\n" for fields in lines))
    read = [(s.problem_id, s.id, s.source, s.response) for s in read_submissions(path)]
    assert read == [(s.problem_id, s.id, s.source, s.response) for s in given_]


def test_a_program_without_an_id_is_called_after_its_problem_and_line(tmp_path: Path):
    path = write(tmp_path / "programs.jsonl", '\n{"problem_id": "add", "source": ""}\n')
    (submission,) = read_submissions(path)
    assert (submission.id, submission.where) == ("add#2", f"{path}:2")


def test_other_keys_of_a_programs_file_are_the_users_own(tmp_path: Path):
    path = write(tmp_path / "programs.jsonl", '{"problem_id": "add", "source": "", "model": "mine"}\n')
    assert len(list(read_submissions(path))) == 1


def test_text_of_a_program_may_be_ill_formed_since_a_model_wrote_it(tmp_path: Path):
    path = write(tmp_path / "programs.jsonl", '{"problem_id": "add", "source": "\\ud800"}\n')
    assert [submission.source for submission in read_submissions(path)] == ["\ud800"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"source": ""}', ":1: problem_id = null: must be the id of a problem, as text"),
        ('{"problem_id": 7, "source": ""}', ":1: problem_id = 7: must be the id of a problem, as text"),
        ('{"problem_id": "a"}', ":1: give exactly one of source and response; found neither"),
        (
            '{"problem_id": "a", "source": "", "response": ""}',
            ":1: give exactly one of source and response; found source and response",
        ),
        ('{"problem_id": "a", "source": null}', ":1: source = null: must be text"),
        ('{"problem_id": "a", "response": ["x"]}', ':1: response = ["x"]: must be text'),
        ('{"problem_id": "a", "source": "", "id": 5}', ":1: id = 5: must be text"),
        ('{"problem_id": "a", "source": "', ":1: not valid JSON (Unterminated string starting at column 31)"),
        ("[]", ":1: expected a JSON object, found []"),
    ],
)
def test_a_bad_line_of_a_programs_file_is_named(tmp_path: Path, text: str, message: str):
    path = write(tmp_path / "programs.jsonl", text)
    with pytest.raises(DataError) as caught:
        list(read_submissions(path))
    assert str(caught.value).removeprefix(str(path)).startswith(message)
    assert "\n" not in str(caught.value)
