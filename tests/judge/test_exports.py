"""The public face of the package, and what it must not drag in."""

from __future__ import annotations

import subprocess
import sys

import autoclave.judge


def test_the_public_names_of_the_package_are_these():
    expected = (
        "ANSWER_RULES EXTRACTION_RULES Judge JudgeJob LocalJudge NotebookCell PlainRunner ProcessJudge RunOrder "
        "RunResult validate_languages judge_file run_program stream trace_file used_by_thread"
    )
    assert sorted(autoclave.judge.__all__) == sorted(expected.split())


def test_judging_needs_no_heavy_library():
    program = "import sys, autoclave.judge; print({'torch', 'ray', 'vllm', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
