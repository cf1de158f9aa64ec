"""Running one program without tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import Ended, InputError, Program
from autoclave.judge import PlainRunner, RunOrder, RunResult, run_program


@pytest.mark.usefixtures("judge")
class TestRunProgram:
    def test_output_and_traceback_are_those_of_python(self):
        outcome = run_program(SandboxConfig(), Program("print(input())\n\ndef f():\n    int('x')\nf()"), b"hello\n")
        assert (outcome.ended, outcome.exit_code, outcome.stdout) == (Ended.EXITED, 1, b"hello\n")
        assert outcome.stderr.decode() == (
            "Traceback (most recent call last):\n"
            '  File "program.py", line 5, in <module>\n    f()\n'
            "  File \"program.py\", line 4, in f\n    int('x')\n"
            "ValueError: invalid literal for int() with base 10: 'x'\n"
        )

    def test_an_exit_code_passes_through(self):
        assert run_program(SandboxConfig(), Program("import sys; sys.exit(3)")).exit_code == 3

    def test_a_source_that_does_not_compile_exits_with_1_and_says_why(self):
        outcome = run_program(SandboxConfig(), Program("print("))
        assert (outcome.ended, outcome.exit_code) == (Ended.EXITED, 1)
        assert outcome.stderr == b"SyntaxError: '(' was never closed (line 1)\n"

    def test_a_limit_is_named(self):
        assert run_program(SandboxConfig(), Program("while True: pass"), time_limit_s=0.3).ended is Ended.CPU_TIME

    @pytest.mark.parametrize(("program", "options"), [(Program("", "cobol"), {}), (Program(""), {"profile": "magic"})])
    def test_what_is_unknown_is_refused(self, program: Program, options: dict[str, str]):
        with pytest.raises(InputError, match="must be"):
            run_program(SandboxConfig(), program, **options)


@pytest.fixture(scope="class")
def runner(judge) -> Iterator[PlainRunner]:
    with PlainRunner(SandboxConfig()) as opened:
        yield opened


def valued(runner: PlainRunner, source: str, **order: object) -> RunResult:
    return runner.run(Program(source), RunOrder(wants_value=True, **order))


class TestRunsThatDecide:
    @pytest.mark.parametrize("decides", [False, True])
    def test_near_the_limit_they_are_repeated_alone(self, runner: PlainRunner, monkeypatch, decides: bool):
        limits: list[float] = []
        run = runner._ran

        def noted(*given: Any) -> RunResult:
            limits.append(given[-1].cpu_s)
            return run(*given)

        monkeypatch.setattr(runner, "_ran", noted)
        burn = Program("import time\nwhile time.process_time() < 0.55: pass")
        for source, expected in ((burn, [0.625, 0.5]), (Program(""), [0.625])):
            limits.clear()
            ended = runner.run(source, RunOrder(time_limit_s=0.5, decides=decides)).outcome.ended
            assert ended is (Ended.CPU_TIME if source is burn else Ended.EXITED)
            assert limits == (expected if decides else [0.5])


class TestFilesAndValues:
    def test_files_are_there_and_come_back(self, runner: PlainRunner):
        source = "f = open('out/b.bin', 'wb'); f.write(open('in/a.txt', 'rb').read() * 2)"
        order = RunOrder(files={"in/a.txt": b"ab", "out/x": b""}, fetch=["out/b.bin", "out", "missing", "/etc/passwd"])
        with pytest.raises(InputError, match="working folder"):
            runner.run(Program(source), order)
        got = runner.run(Program(source), replace(order, fetch=order.fetch[:3]))
        assert (got.outcome.exit_code, got.files) == (0, {"out/b.bin": b"abab"})

    @pytest.mark.parametrize("path", ["", "/a", "../a", "a/../../b", "a/", "a\0b"])
    def test_a_file_stays_in_the_folder(self, runner: PlainRunner, path: str):
        with pytest.raises(InputError, match="working folder"):
            runner.run(Program(""), RunOrder(files={path: b""}))

    def test_files_beyond_the_disk_are_refused(self, runner: PlainRunner):
        with pytest.raises(InputError, match="at most"):
            runner.run(Program(""), RunOrder(files={"a": bytes(33 << 20)}))

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ("x = 3\nx * 2", "6"),
            ("'text'", "'text'"),
            ("None", "None"),
            ("x = 1", None),
            ("", None),
            ("1 / 0", None),
            ("import os\nos._exit(0)", None),
            ("class A:\n    def __repr__(self): raise ValueError\nA()", None),
            ("import os\nos.close(3)\n5", None),
            ("import os\nos.write(3, b'\\xff' * 20)\n5", None),
            ("import os\nos.write(3, b'\\x00\\x00\\x00\\x02[]')\n5", None),
        ],
    )
    def test_the_value_is_that_of_the_last_expression(self, runner: PlainRunner, source: str, value: str | None):
        assert valued(runner, source).value == value

    def test_asking_for_the_value_changes_nothing_else(self, runner: PlainRunner):
        source = "import sys\nprint(input(), len(globals()))\nsys.stderr.write('e')"
        plain = runner.run(Program(source), RunOrder(b"in\n")).outcome
        got = valued(runner, source, stdin=b"in\n")
        assert (got.outcome.stdout, got.outcome.stderr, got.value) == (plain.stdout, plain.stderr, "1")
        refused = valued(runner, "print(")
        assert refused.compile_error is not None
        assert refused.outcome.stderr == b"SyntaxError: '(' was never closed (line 1)\n"

    def test_a_long_value_is_cut_and_a_forged_one_bounded(self, runner: PlainRunner):
        got = valued(runner, "[1] * 10_000")
        assert (len(got.value or ""), got.value_cut) == (10_000, 20_000)
        flood = "import os\nos.write(3, (1 << 30).to_bytes(4, 'big'))\nwhile True: os.write(3, bytes(1 << 16))"
        assert valued(runner, flood).outcome.ended is Ended.OUTPUT

    def test_limits_hold(self, runner: PlainRunner):
        assert valued(runner, "while True: pass", time_limit_s=0.3).outcome.ended is Ended.CPU_TIME
        sleeper = "import time\ntime.sleep(60)"
        assert runner.run(Program(sleeper), RunOrder(wall_limit_s=0.3)).outcome.ended is Ended.WALL_TIME
        hungry = "x = bytearray(100 << 20)\nfor i in range(0, 100 << 20, 4096): x[i] = 1"
        assert runner.run(Program(hungry), RunOrder(memory_limit_mb=64)).outcome.exit_code != 0

    def test_compiled_programs_have_neither_files_nor_values(self, runner: PlainRunner):
        with pytest.raises(InputError, match="Python"):
            runner.run(Program("int main() {}", "cpp"), RunOrder(wants_value=True))

    def test_cells_share_names_and_one_that_fails_does_not_stop_the_others(self, runner: PlainRunner):
        sources = ["a = 1", "print(a)\na", "import sys; sys.stderr.write('e'); 1/0", "def (", "a + 1\n"]
        cells = runner.run_notebook(sources, RunOrder()).cells
        assert [cell.stdout for cell in cells] == ["", "1\n", "", "", ""]
        assert [cell.value for cell in cells] == [None, "1", None, None, "2"]
        assert [cell.error and cell.error[0] for cell in cells] == [
            None,
            None,
            "ZeroDivisionError",
            "SyntaxError",
            None,
        ]
        assert "<cell 3>" in cells[2].error[2][1]

    def test_cells_that_take_too_long_tell_nothing(self, runner: PlainRunner):
        got = runner.run_notebook(["print(1)", "while True: pass"], RunOrder(time_limit_s=0.3))
        assert (got.outcome.ended, got.cells) == (Ended.CPU_TIME, [])
