"""`autoclave run`: one program, sealed, as if it were started by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ended

Autoclave = Callable[..., Ended]


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """program("source"): its file."""

    def write(source: str) -> Path:
        (tmp_path / "program.py").write_text(source)
        return tmp_path / "program.py"

    return write


def test_standard_streams_pass_through(autoclave: Autoclave, program: Callable[[str], Path]):
    source = "import sys\nprint(sum(map(int, input().split())))\nprint('to err', file=sys.stderr)"
    ended = autoclave("run", program(source), input="3 4\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "to err\n")


def test_bytes_that_are_not_text_pass_through_unchanged(program: Callable[[str], Path]):
    source = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    command = [sys.executable, "-m", "autoclave", "run", str(program(source))]
    ended = subprocess.run(command, input=b"\x00\xff\n\x80", capture_output=True, timeout=600, check=False)
    assert ended.stdout == b"\x80\n\xff\x00"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("raise SystemExit(3)", ""),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("print(", "SyntaxError"),
        ("import os; os.kill(os.getpid(), 9)", "ended: signalled"),
        ("while True: print('x' * 4096)", "ended: output"),
        ("x = bytearray(1 << 31)", ""),
    ],
)
def test_a_program_that_does_not_exit_with_0_ends_with_1(
    autoclave: Autoclave, program: Callable[[str], Path], source: str, error: str
):
    ended = autoclave("run", program(source), "sandbox.output_limit_mb=0.1")
    assert ended.returncode == 1
    assert error in ended.stderr


def test_the_time_limit_is_named(autoclave: Autoclave, program: Callable[[str], Path]):
    ended = autoclave(
        "run", program("while True: pass"), "judge.default_time_limit_s=0.5", "judge.time_limit_range=[0.1, 1]"
    )
    assert (ended.returncode, ended.stderr.split()[:2]) == (1, ["ended:", "cpu_time"])


def test_json_is_the_outcome(autoclave: Autoclave, program: Callable[[str], Path]):
    ended = autoclave("run", program("import sys; print('out'); sys.exit('err')"), "--json")
    outcome = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert (outcome["ended"], outcome["exit_code"], outcome["signal"]) == ("exited", 1, None)
    assert (outcome["stdout"], outcome["stderr"]) == ("out\n", "err\n")
    assert {"cpu_s", "wall_s", "memory_mb", "stdout_cut", "stderr_cut", "detail"} <= set(outcome)


def test_the_program_sees_nothing_of_the_caller(autoclave: Autoclave, program: Callable[[str], Path], tmp_path: Path):
    source = f"import os\nprint(os.path.exists({str(tmp_path)!r}), 'HOME' in os.environ, os.getpid() < 10)"
    assert autoclave("run", program(source)).stdout == "False False True\n"


def test_standard_input_that_the_caller_closed_is_empty(program: Callable[[str], Path]):
    command = f'"{sys.executable}" -m autoclave run "{program("import sys; print(repr(sys.stdin.read()))")}" <&-'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stdout) == (0, "''\n")


def test_a_closed_pipe_gives_no_traceback(program: Callable[[str], Path]):
    source = program("print('x' * 1_000_000)")
    command = f'"{sys.executable}" -m autoclave run "{source}" | head -c 1'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.stdout, ended.stderr) == ("x", "")
