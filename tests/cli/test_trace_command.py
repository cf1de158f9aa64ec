"""`autoclave trace`, and traces of the wrong answers of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import Trace
from autoclave.core.json import from_plain

from .conftest import ADD, RIGHT, WRONG, Ended

Autoclave = Callable[..., Ended]
TWICE = "def twice(x):\n    half = x\n    print('not shown')\n    return [half * 2]\n"


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """program("source"): its file."""

    def write(source: str) -> Path:
        (tmp_path / "program.py").write_text(source)
        return tmp_path / "program.py"

    return write


def test_a_main_program_reads_standard_input_and_its_variables_are_printed(autoclave: Autoclave, program):
    source = "a, b = map(int, input().split())\ndef main():\n    s = str(a + b)\n    print(s)\nmain()"
    ended = autoclave("trace", program(source), input="3 4\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "a = 3\nb = 4\nmain.s = '7'\n", "")


def test_a_call_ends_with_its_return_value(autoclave: Autoclave, program):
    ended = autoclave("trace", program(TWICE), "--call", "twice", "--arguments", "[1.5]")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "x = 1.5\nhalf = 1.5\nreturn [3.0]\n", "")


def test_a_program_that_raises_is_reported_on_standard_error_and_in_the_exit_code(autoclave: Autoclave, program):
    ended = autoclave("trace", program(f"x = 1\ny = {'9' * 2000}\n1 / 0"))
    assert (ended.returncode, ended.stdout) == (1, "x = 1\n")
    assert ended.stderr == "left out: 1 variables, too large or too many\nraised: ZeroDivisionError (line 3)\n"


def test_a_profile_of_the_settings_can_be_chosen(autoclave: Autoclave, program):
    words = (program("x = WIDTH"), "judge.profiles={mine: {base: plain, preamble: WIDTH = 3}}")
    assert autoclave("trace", *words, "--profile", "mine").stdout == "x = 3\n"
    unknown = autoclave("trace", *words, "--profile", "yours")
    assert (unknown.returncode, "profile = 'yours': must be one of lcb, plain" in unknown.stderr) == (2, True)


def test_json_is_the_trace(autoclave: Autoclave, program):
    ended = autoclave("trace", program(TWICE), "--call", "twice", "--arguments", '["a"]', "--json")
    trace = from_plain(Trace, json.loads(ended.stdout), "output")
    assert (trace.status, trace.entry, trace.result) == ("finished", "twice", "['aa']")
    assert trace.values == {"x": "a", "half": "a"}


def test_a_profile_provides_its_names(autoclave: Autoclave, program):
    source = program("x = gcd(12, 18)")
    assert autoclave("trace", source).returncode == 1
    assert autoclave("trace", source, "--profile", "lcb").stdout == "x = 6\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "Error: program nothing.py: no such file\n"),
        (["program.py", "--call", "a b"], 'Error: --call "a b": must be a name such as f or Solution.f\n'),
        (["program.py", "--call", "f", "--arguments", "3"], 'Error: --arguments "3": must be a list such as [1, 2]\n'),
        (["program.py", "--call", "f", "--arguments", "["], 'Error: --arguments "[": not valid JSON (Expecting value'),
        (["program.py", "--arguments", "[1]"], "Error: --arguments needs --call. Fix: give --call NAME too\n"),
    ],
)
def test_an_error_is_reported_before_anything_runs(program, complaint, words: list[str], message: str):
    program("x = 1")
    code, printed = complaint("trace", *words)
    assert code == 2
    assert printed.startswith(message)


# --- Files ---------------------------------------------------------------------------------------------------------

CALL = {
    **{"format": "autoclave-problem/1", "id": "add-call", "statement": "Add."},
    "tests": {"kind": "call", "entry_point": "f", "cases": [{"arguments": [1, 2], "output": 3}]},
}


def traces_of(path: Path) -> list[Trace]:
    return [from_plain(Trace, json.loads(line), "traces") for line in path.read_text().splitlines()]


def test_wrong_answers_of_a_file_are_traced_on_their_failing_test(autoclave: Autoclave, write_lines, tmp_path: Path):
    write_lines("problems.jsonl", ADD, CALL)
    programs: list[dict[str, Any]] = [
        *(RIGHT, WRONG, {"problem_id": "add", "source": "raise ValueError"}, {"problem_id": "add", "response": "no"}),
        {
            "problem_id": "add-call",
            "response": "```python\ndef f(a, b):\n    c = a - b\n    return c\n```",
            "id": "mine",
        },
        {"problem_id": "add", "source": "x, y = map(int, input().split())\nprint(x)\nimport os; os._exit(0)"},
    ]
    write_lines("programs.jsonl", *programs)
    words = ("judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl")
    ended = autoclave(*words, "--traces", "traces.jsonl", "--json")
    counts = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (counts["wrong_answer"], counts["traces"]) == (3, {"finished": 2, "no_values": 1})
    found = {trace.id: trace for trace in traces_of(tmp_path / "traces.jsonl")}
    assert list(found) == ["add#2", "mine", "add#6"]
    assert (found["add#2"].test, found["add#2"].result, found["add#2"].variables) == (1, "7\n", {})
    assert found["mine"].variables == {"a": "1", "b": "2", "c": "-1"}
    assert (found["mine"].entry, found["mine"].result) == ("f", "-1")
    assert found["add#6"].status == "no_values"

    verdicts = (tmp_path / "verdicts.jsonl").read_text()
    assert autoclave(*words[:-1], "again.jsonl").returncode == 0
    decided = [
        [(v["id"], v["status"], v["message"]) for v in map(json.loads, text.splitlines())]
        for text in (verdicts, (tmp_path / "again.jsonl").read_text())
    ]
    assert decided[0] == decided[1]


@pytest.mark.parametrize("target", ["problems.jsonl", "programs.jsonl", "verdicts.jsonl"])
def test_traces_never_replace_another_file_of_the_same_command(complaint, write_lines, tmp_path: Path, target: str):
    write_lines("problems.jsonl", ADD)
    write_lines("programs.jsonl", WRONG)
    code, message = complaint(
        "judge", "problems.jsonl", "programs.jsonl", "--out", "verdicts.jsonl", "--traces", target
    )
    assert code == 2
    assert f"--traces {target}: is read or written already" in message
    assert not (tmp_path / "verdicts.jsonl").exists()
