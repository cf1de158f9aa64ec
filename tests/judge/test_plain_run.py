"""Running one program without tests."""

from __future__ import annotations

import pytest

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import Ended, InputError, Program
from autoclave.judge import run_program


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
