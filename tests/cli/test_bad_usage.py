"""Bad usage ends with 2 and one or two lines on standard error, before any work, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ADD, RIGHT, Ended

Complaint = Callable[..., tuple[int, str]]
WriteLines = Callable[..., Path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "Error: No such command 'nonsense'.\nTry: autoclave --help\n"),
        (["judge"], "Error: Missing argument 'PROBLEMS'.\nTry: autoclave judge --help\n"),
        (["judge", "a", "b"], "Error: Missing option '--out'.\nTry: autoclave judge --help\n"),
        (["judge", "--bogus"], "Error: No such option '--bogus'."),
        (
            ["judge", "a", "b", "--out", "c", "judge.worker=2"],
            "Error: judge.worker: no such setting; did you mean judge.w",
        ),
        (["judge", "a", "b", "--out", "c", "recipe.yaml"], "Error: recipe recipe.yaml: no such file\n"),
        (["judge", "a", "b", "--out", "c"], "Error: problem file a: no such file\n"),
        (["run"], "Error: Missing argument 'FILE'.\nTry: autoclave run --help\n"),
        (["run", "a.py"], "Error: program a.py: no such file\n"),
        (["run", "."], "Error: program .: is a folder; give a file\n"),
        (["run", "a.py", "sandbox.memory_limit_mb=0"], "Error: sandbox.memory_limit_mb = 0: must be greater than 0\n"),
        (["doctor", "sandbox.level=seald"], "Error: sandbox.level = \"seald\": must be 'auto', 'sealed', 'restricted'"),
        (["doctor", "sandbox.level=open"], 'Error: sandbox: level "open" is below minimum_level "sealed"; to accept'),
        (
            ["config", "show", "a.yaml", "b.yaml"],
            'Error: "b.yaml": is a second recipe. Fix: give one; settings have the form KEY=VALUE\n',
        ),
        (["config", "show", "a.yaml"], "Error: recipe a.yaml: no such file\n"),
        (["config", "show", "stepz=1"], "Error: stepz: no such setting; did you mean steps?\n"),
        (
            ["config", "show", "--steps", "x"],
            "Error: Invalid value for '--steps': 'x' is not a valid integer.\nTry: autoc",
        ),
        (["config", "show", "--steps", "0"], "Error: steps = 0: must be greater than 0 (from --steps)\n"),
        (
            ["config", "show", "--algorithm", "grppo"],
            'Error: algorithm.name = "grppo": no such choice; did you mean grpo?',
        ),
        (
            ["train", "--algorithm", "grppo"],
            'Error: algorithm.name = "grppo": no such choice; did you mean grpo? Known',
        ),
        (
            ["train", "--algorithm", "grpo", "algorithm.clip_upper=0.3"],
            "Error: algorithm.clip_upper: no such setting; grp",
        ),
        (["train", "a.yaml"], "Error: recipe a.yaml: no such file\n"),
        (
            ["train", "problems.name=files"],
            "Error: problems: train is missing; give train and heldout, or path alone, which is split\n",
        ),
        (["sft", "recipe.yaml"], "Error: Missing option '--out'.\nTry: autoclave sft --help\n"),
        (["sft", "sft.stepz=3", "--out", "c"], "Error: sft.stepz: no such setting; did you mean sft.steps?\n"),
        (["evaluate", "measure"], "Error: Missing argument 'MODEL'.\nTry: autoclave evaluate measure --help\n"),
        (
            ["evaluate", "model", "--samples", "0"],
            "Error: Invalid value for '--samples': 0 is not in the range x>=1.\nT",
        ),
        (["report", "nothing"], "Error: run folder nothing: no such folder"),
        (["report"], "Error: Missing argument 'RUN_FOLDER'.\nTry: autoclave report --help\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_error_is_named(complaint: Complaint, tmp_path: Path, words: list[str], message: str):
    code, error = complaint(*words)
    assert code == 2
    assert error.startswith(message)
    assert error.count("\n") <= 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("problems", "programs", "message"),
    [
        ([ADD, "{"], [RIGHT], "problems.jsonl:2: not valid JSON (Expecting property name enclosed in double quotes at"),
        ([ADD, ADD], [RIGHT], "problems.jsonl:2: id = "),
        ([ADD | {"tests": {"kind": "stdin", "cases": []}}], [RIGHT], "problems.jsonl:1"),
        ([ADD | {"statment": ""}], [RIGHT], "problems.jsonl:1: statment: no such field; did you mean statement?"),
        ([ADD | {"format": "other/1"}], [RIGHT], 'problems.jsonl:1: format = "other/1": must be "autoclave-problem/1"'),
        (
            [ADD],
            [RIGHT, "nonsense"],
            "programs.jsonl:2: not valid JSON (Expecting value at column 1); each line must be",
        ),
        ([ADD], [RIGHT, {"problem_id": "ad", "source": ""}], "programs.jsonl:2: problem_id = "),
        ([ADD], [{"problem_id": "add"}], "programs.jsonl:1: give exactly one of source and response; found neither"),
        ([ADD], [RIGHT | {"id": "x"}, RIGHT | {"id": "x"}], "programs.jsonl:2: id = "),
        ([ADD | {"checker": "magic"}], [RIGHT], "problem 'add': checker = 'magic': must be one of lcb, exact, tokens"),
        ([ADD | {"profile": "magic"}], [RIGHT], "problem 'add': profile = 'magic': must be one of lcb, plain"),
        ([ADD | {"language": "cobol"}], [RIGHT], "problem 'add': language = 'cobol': must be one of python"),
    ],
)
def test_a_bad_line_is_named_and_no_verdict_is_written(
    complaint: Complaint,
    write_lines: WriteLines,
    tmp_path: Path,
    problems: list[Any],
    programs: list[Any],
    message: str,
):
    write_lines("problems.jsonl", *problems)
    write_lines("programs.jsonl", *programs)
    code, error = complaint("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    assert code == 2
    assert message in error
    assert error.startswith("Error: ")
    assert error.count("\n") <= 2
    assert sorted(os.listdir(tmp_path)) == ["problems.jsonl", "programs.jsonl"]


def test_the_old_verdicts_stay_when_a_new_file_is_bad(complaint: Complaint, write_lines: WriteLines, tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", "{")
    write_lines("verdicts.jsonl", "old")
    complaint("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    assert (tmp_path / "verdicts.jsonl").read_text() == "old\n"


def test_verdicts_do_not_replace_a_folder(complaint: Complaint, write_lines: WriteLines, tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", RIGHT)
    (tmp_path / "verdicts").mkdir()
    code, error = complaint("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts")
    assert (code, error) == (2, "Error: verdicts: is a folder; give the name of a file\n")


def test_a_program_that_is_not_text_is_named(complaint: Complaint, tmp_path: Path):
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    assert complaint("run", "a.py") == (2, "Error: program a.py: not UTF-8 (invalid start byte at byte 0)\n")


def test_a_process_of_its_own_shows_no_traceback_either(autoclave: Callable[..., Ended]):
    ended = autoclave("judge", "a", "b", "--out", "c", "judge.worker=2")
    message = "Error: judge.worker: no such setting; did you mean judge.workers?\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", message)
