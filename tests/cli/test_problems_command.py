"""`autoclave problems` as users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from .conftest import ADD


@pytest.fixture
def file(tmp_path: Path) -> Path:
    other = ADD | {
        "id": "subtract",
        "statement": "Subtract.",
        "solutions": ["a, b = map(int, input().split())\nprint(a - b)"],
    }
    path = tmp_path / "problems.jsonl.zst"
    path.write_bytes(zstandard.compress("".join(json.dumps(one) + "\n" for one in (ADD, other)).encode()))
    return path


def test_a_problem_is_shown(autoclave, file: Path):
    shown = autoclave("problems", "show", file, "subtract")
    assert shown.returncode == 0, shown.stderr
    assert all(text in shown.stdout for text in ("Subtract.", "stdin, 2\n3 4\n-> 7", "solution 1 of 1", "print(a - b)"))
    whole = autoclave("problems", "show", file, "add", "--json")
    assert json.loads(whole.stdout) == ADD


def test_an_unknown_id_suggests_a_similar_one(autoclave, file: Path):
    shown = autoclave("problems", "show", file, "substract")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "has no problem 'substract'; did you mean subtract?" in shown.stderr


def test_statistics_of_a_file(autoclave, file: Path):
    assert autoclave("problems", "stats", file).stdout.startswith("2 problems, 1 with solutions\n")
    numbers = json.loads(autoclave("problems", "stats", file, "--json").stdout)
    assert (numbers["num_problems"], numbers["num_tests"]) == (2, [2, 2.0, 2])


def test_two_files_are_compared(autoclave, file: Path, tmp_path: Path):
    second = tmp_path / "second.jsonl"
    second.write_text(json.dumps(ADD | {"statement": "Sum."}) + "\n")
    found = autoclave("problems", "diff", file, second)
    assert found.stdout == "add  changed: statement\nsubtract  only in the first\n1 changed, 1 only in the first\n"
    assert autoclave("problems", "diff", file, file).stdout == "no differences\n"
    lines = autoclave("problems", "diff", file, second, "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["add", "subtract"]


def test_a_sample_is_a_file_of_problems(autoclave, file: Path):
    lines = autoclave("problems", "sample", file, "-n", "1", "--json").stdout.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["format"] == "autoclave-problem/1"
    assert "Add two numbers." in autoclave("problems", "sample", file).stdout


def test_a_file_that_is_cut_off_is_named(autoclave, file: Path):
    file.write_bytes(file.read_bytes()[:-4])
    found = autoclave("problems", "stats", file)
    assert found.returncode == 2
    assert "damaged zstd file (it ends in the middle)" in found.stderr
