"""`autoclave judge`: a line per program, in order, and the exit code."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ADD, RIGHT, WRONG, Ended

WriteLines = Callable[..., Path]
CALL = {
    "format": "autoclave-problem/1",
    "id": "twice",
    "statement": "Double it.",
    "tests": {"kind": "call", "entry_point": "twice", "cases": [{"arguments": [2], "output": 4}]},
}
PROGRAMS = [
    RIGHT | {"id": "mine"},
    WRONG,
    {"problem_id": "twice", "response": "So:\n```python\ndef twice(x):\n    return 2 * x\n```\n"},
    {"problem_id": "twice", "response": "I do not know."},
    {"problem_id": "add", "source": "print("},
    {"problem_id": "add", "source": "print('\ud800')"},
    {"problem_id": "add", "source": "raise SystemExit(3)"},
]


def verdicts_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def judged(autoclave: Callable[..., Ended], write_lines: WriteLines) -> Ended:
    write_lines("problems.jsonl", ADD, CALL)
    write_lines("programs.jsonl", *PROGRAMS)
    return autoclave(
        "judge", "problems.jsonl", "programs.jsonl", "--out", "out/verdicts.jsonl", "judge.workers=2", "--json"
    )


def test_every_program_gets_a_verdict_in_order(judged: Ended, tmp_path: Path):
    assert (judged.returncode, judged.stderr) == (0, "")
    verdicts = verdicts_of(tmp_path / "out" / "verdicts.jsonl")
    assert [(verdict["id"], verdict["status"], verdict["reward"], verdict["failing_test"]) for verdict in verdicts] == [
        ("mine", "accepted", 1.0, None),
        ("add#2", "wrong_answer", 0.0, 1),
        ("twice#3", "accepted", 1.0, None),
        ("twice#4", "bad_format", 0.0, None),
        ("add#5", "compile_error", 0.0, None),
        ("add#6", "compile_error", 0.0, None),
        ("add#7", "runtime_error", 0.0, 0),
    ]
    counts = {"accepted": 2, "wrong_answer": 1, "bad_format": 1, "compile_error": 2, "runtime_error": 1}
    assert {status: count for status, count in json.loads(judged.stdout).items() if count} == counts
    assert os.listdir(tmp_path / "out") == ["verdicts.jsonl"]


def test_the_counts_are_printed_as_a_table(autoclave: Callable[..., Ended], write_lines: WriteLines, tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", RIGHT, WRONG)
    ended = autoclave("judge", "problems.jsonl", "programs.jsonl", "--out", tmp_path / "out")
    assert ended.stdout.splitlines()[0] == f"2 programs judged; verdicts in {tmp_path / 'out'}"
    assert ["accepted", "1"] in [line.split() for line in ended.stdout.splitlines()]


def test_a_file_without_programs_is_an_error(autoclave: Callable[..., Ended], write_lines: WriteLines, tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl")
    ended = autoclave("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    assert ended.returncode == 2
    assert "programs.jsonl" in ended.stderr
    assert not (tmp_path / "verdicts.jsonl").exists()


def test_a_verdict_never_holds_the_text_of_a_test(
    autoclave: Callable[..., Ended], write_lines: WriteLines, tmp_path: Path
):
    secret = {"kind": "stdin", "cases": [{"input": "INPUT-SECRET\n", "output": "OUTPUT-SECRET\n"}]}
    write_lines("problems.jsonl", ADD | {"tests": secret})
    leaks = ["print(input())", "raise ValueError(input())", "import sys; sys.exit(input())", "open(input())"]
    write_lines("programs.jsonl", *({"problem_id": "add", "source": source} for source in leaks))
    ended = autoclave("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    assert "SECRET" not in (tmp_path / "verdicts.jsonl").read_text() + ended.stdout + ended.stderr


def test_without_a_verdict_the_line_has_the_fault_and_the_command_ends_with_1(write_lines: WriteLines, tmp_path: Path):
    # A real fault: every helper process of the judge is killed as soon as it appears, from the first verdict on.
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", {"problem_id": "add", "source": "while True: pass"})
    command = ["judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl", "judge.workers=1"]
    with subprocess.Popen(
        [sys.executable, "-m", "autoclave", *command],
        cwd=tmp_path,
        stdout=-1,
        stderr=-1,
        text=True,
        preexec_fn=hear_interrupts,
    ) as judge:
        deadline = time.monotonic() + 240
        while not list(tmp_path.glob(".verdicts.jsonl.*.partial")) and judge.poll() is None:
            assert time.monotonic() < deadline  # judging begins when the file of verdicts is opened
            time.sleep(0.001)
        while judge.poll() is None:
            assert time.monotonic() < deadline
            for child in _children(judge.pid):
                _kill(child)
        output, error = judge.communicate()
    (verdict,) = verdicts_of(tmp_path / "verdicts.jsonl")
    assert (verdict["status"], verdict["reward"]) == (None, None)
    assert verdict["fault"]["kind"] == "sandbox"
    assert judge.returncode == 1
    assert "Error: 1 of 1 programs have no verdict; see `fault` in verdicts.jsonl" in error
    assert "no_verdict" in output


def _children(parent: int) -> list[int]:
    try:
        lists = [path.read_text().split() for path in Path(f"/proc/{parent}/task").glob("*/children")]
    except OSError:
        return []
    return [int(pid) for pids in lists for pid in pids]


def _deepest_descendant(pid: int, depth: int = 0) -> tuple[int, int]:
    return max([(depth, pid), *(_deepest_descendant(child, depth + 1) for child in _children(pid))])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was faster
        os.kill(pid, signal.SIGKILL)


def hear_interrupts() -> None:
    """Tests that run in the background of a shell inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_command_leaves_no_file_and_no_process(write_lines: WriteLines, tmp_path: Path):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", {"problem_id": "add", "source": "while True: pass"})
    command = ["judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl", "judge.workers=1"]
    with subprocess.Popen(
        [sys.executable, "-m", "autoclave", *command],
        cwd=tmp_path,
        stdout=-1,
        stderr=-1,
        text=True,
        preexec_fn=hear_interrupts,
    ) as judge:
        deadline = time.monotonic() + 240
        while _deepest_descendant(judge.pid)[0] < 3:  # helper, cell, test
            assert time.monotonic() < deadline
            time.sleep(0.001)
        helpers = _children(judge.pid)
        judge.send_signal(signal.SIGINT)
        _, error = judge.communicate(timeout=60)
    assert judge.returncode == 1
    assert "Traceback" not in error
    assert sorted(os.listdir(tmp_path)) == ["problems.jsonl", "programs.jsonl"]
    assert not [pid for pid in helpers if Path(f"/proc/{pid}").exists()]
