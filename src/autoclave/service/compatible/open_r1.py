"""Requests of open-r1's Codeforces reward: a submission with one test, its limits, and possibly a checker."""

from collections.abc import Mapping
from pathlib import Path

from autoclave.core import CustomChecker, Problem, StdinCase, StdinTests
from autoclave.service.refusals import bad_input

FILES = {"grader_config", "input.txt", "correct_output.txt"}
"""Files beside a program that make it a submission."""
_CHECKER, _PYTHON_FILES, _CPP_FILES = (
    Path(__file__).with_name(f"open_r1_{name}.txt").read_text("utf-8") for name in ("checker", "python", "cpp")
)


def problem_and_program(source: str, language: str, files: Mapping[str, bytes], profile: str) -> tuple[Problem, str]:
    """Return the problem in a request, and the program, which reads standard input, or raise `Refused`."""
    if unknown := sorted(set(files) - FILES - {"checker.py"}):
        raise bad_input(f"files: {unknown[0][:100]}: not a file of open-r1's grader. Fix: leave it out")
    try:
        given, expected, text = (files[name].decode() for name in ("input.txt", "correct_output.txt", "grader_config"))
        checker = files["checker.py"].decode() if "checker.py" in files else None
        settings = dict(line.split("=", 1) for line in text.splitlines() if line.strip())
        time_limit_s, memory_mb = float(settings.pop("TIME_LIMIT")), int(float(settings.pop("MEMORY_LIMIT")))
    except (ValueError, KeyError, OverflowError):
        raise bad_input("files: must be UTF-8; grader_config: TIME_LIMIT=seconds and MEMORY_LIMIT=MiB") from None
    mode = settings.pop("INPUT_MODE", "stdio")
    if mode not in ("stdio", "file") or settings:
        raise bad_input("files: grader_config: only INPUT_MODE=stdio or file beside TIME_LIMIT and MEMORY_LIMIT")
    if not 0 < time_limit_s < 1e9 or memory_mb <= 0:
        raise bad_input("files: grader_config: limits must be greater than 0")
    # The script runs as open-r1's grader runs it: with three files; it prints 1 for a pass.
    custom = None if checker is None else CustomChecker("custom", _CHECKER.replace("SCRIPT", repr(checker)))
    problem = Problem(
        "",
        StdinTests("stdin", [StdinCase(given, expected)]),
        time_limit_s=time_limit_s,
        memory_limit_mb=memory_mb,
        checker=custom or "lcb",
        profile=profile,
        language=language,
        source="piston",
    )
    return problem, source if mode == "stdio" else _using_files(source, language)


def _using_files(source: str, language: str) -> str:
    """Return the program with its input in `input.txt` and its `output.txt` on standard output."""
    if language == "cpp":
        return f'{_CPP_FILES}\n#line 1 "program.cpp"\n{source}'
    return _PYTHON_FILES.replace("PROGRAM", repr(source))
