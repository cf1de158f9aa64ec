"""Conformance suite of judges, local or remote, as tests that any judge can run.

Subclass `JudgeConformance` and override the fixture `judge`, which gives one judge to all tests of the class:

    class TestMine(JudgeConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def judge(cls):
            with MyJudge() as judge:
                yield judge

`check_closing` is for a judge that no other test uses.
"""

import itertools
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import pytest

from autoclave.config.levels import LEVELS
from autoclave.core import (
    CallCase,
    CallTests,
    CheckTests,
    InputError,
    Problem,
    Program,
    Status,
    StdinCase,
    StdinTests,
    TraceStatus,
    Verdict,
)
from autoclave.judge.interface import Judge, JudgeJob
from autoclave.judge.streaming import stream

DEADLINE_S = 120.0
"""Timeout of a verdict."""
ECHO = "print(input())"
SECRET = "x7-expected-q9"
_numbers = itertools.count()


def stdin_problem(*cases: tuple[str, str], **fields: Any) -> Problem:
    """Return a problem with these cases."""
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases])
    given: dict[str, Any] = {"id": "p", "profile": "plain", **fields}
    return Problem("s", tests, **given)


def fresh(source: str) -> Program:
    """Return a program that no judge has seen."""
    return Program(f"{source}  # {next(_numbers)}")


def verdict_of(judge: Judge, problem: Problem, program: Program, **options: Any) -> Verdict:
    """Return the verdict of one job."""
    return judge.submit(JudgeJob(problem, program, "x", **options)).result(DEADLINE_S)


def check_closing(judge: Judge) -> None:
    """Assert that closing cancels queued jobs, ends running ones, may be repeated, and that later jobs are refused."""
    problem = stdin_problem(("a", "a"), time_limit_s=2.0)
    futures = [judge.submit(JudgeJob(problem, fresh("while True: pass"))) for _ in range(20)]
    judge.close()
    judge.close()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(DEADLINE_S)
    with pytest.raises(RuntimeError, match="closed"):
        judge.submit(JudgeJob(problem, Program(ECHO)))


class JudgeConformance:
    """Tests of a judge with the default limits."""

    @pytest.fixture(scope="class")
    @classmethod
    def judge(cls) -> Judge:
        raise NotImplementedError("override this fixture")

    @pytest.mark.parametrize(
        ("source", "status", "failing_test"),
        [
            (ECHO, Status.ACCEPTED, None),
            ("print('a')", Status.WRONG_ANSWER, 1),
            ("print(input()); 1 / 0", Status.RUNTIME_ERROR, 0),
            ("import sys; sys.exit(0)", Status.WRONG_ANSWER, 0),
            ("print(", Status.COMPILE_ERROR, None),
            ("bytearray(1 << 33)", Status.RUNTIME_ERROR, 0),
        ],
    )
    def test_each_end_has_its_status(self, judge: Judge, source: str, status: Status, failing_test: int | None):
        verdict = verdict_of(judge, stdin_problem(("a", "a"), ("b", "b")), fresh(source))
        if source.startswith("bytearray"):
            assert verdict.status in (Status.RUNTIME_ERROR, Status.MEMORY_LIMIT)
        else:
            assert verdict.status is status
        assert verdict.failing_test == failing_test
        assert verdict.reward == (1.0 if status is Status.ACCEPTED else 0.0)
        assert (verdict.problem_id, verdict.id, verdict.fault) == ("p", "x", None)
        assert verdict.level == judge.level

    def test_calls_are_compared_as_values(self, judge: Judge):
        tests = CallTests("call", "Solution.add", [CallCase([1, 2], 3), CallCase([2, 2], 4)])
        problem = Problem("s", tests, id="call")
        right = verdict_of(judge, problem, fresh("class Solution:\n    def add(self, a, b): return a + b"))
        wrong = verdict_of(judge, problem, fresh("class Solution:\n    def add(self, a, b): return 3"))
        assert (right.status, wrong.status, wrong.failing_test) == (Status.ACCEPTED, Status.WRONG_ANSWER, 1)

    def test_checks_decide_by_their_own_code(self, judge: Judge):
        tests = CheckTests("check", "f", "def check(candidate):\n    assert candidate(2) == 4", "check(candidate)")
        problem = Problem("s", tests, id="check")
        assert verdict_of(judge, problem, fresh("def f(x): return x * x")).is_accepted
        assert verdict_of(judge, problem, fresh("def f(x): return x")).status is not Status.ACCEPTED

    def test_many_jobs_come_back_under_their_own_ids_in_order(self, judge: Judge):
        problem = stdin_problem(("a", "a"), ("b", "b"))
        jobs = [JudgeJob(problem, fresh(ECHO if i % 3 else "print(1)"), str(i)) for i in range(40)]
        verdicts = [verdict for _, verdict in stream(judge, jobs, pending_limit=32)]
        assert [verdict.id for verdict in verdicts] == [str(i) for i in range(40)]
        assert [verdict.is_accepted for verdict in verdicts] == [bool(i % 3) for i in range(40)]

    def test_identical_programs_are_answered_under_their_own_ids(self, judge: Judge):
        problem, program = stdin_problem(("a", "a")), fresh(ECHO)
        futures = [judge.submit(JudgeJob(replace(problem, id=f"p{i}"), program, str(i))) for i in range(5)]
        found = [future.result(DEADLINE_S) for future in futures]
        assert [(verdict.problem_id, verdict.id) for verdict in found] == [(f"p{i}", str(i)) for i in range(5)]
        assert all(verdict.is_accepted for verdict in found)

    def test_the_longest_tests_or_all_can_be_chosen(self, judge: Judge):
        problem = stdin_problem(("a", "x"), ("bbb", "bbb"), ("c", "x"))
        longest = verdict_of(judge, problem, fresh(ECHO), tests="longest:1")
        every = verdict_of(judge, problem, fresh(ECHO), stop_at_failure=False)
        assert [result.index for result in longest.tests] == [1]
        assert longest.is_accepted
        assert [result.status.value[0] for result in every.tests] == ["w", "a", "w"]
        assert every.failing_test == 0

    def test_no_expected_answer_is_in_a_verdict(self, judge: Judge):
        problem = stdin_problem(("a", SECRET))
        for source in ("print(1)", "1 / 0", "raise ValueError(open('/proc/self/environ').read())", "print("):
            assert SECRET not in repr(verdict_of(judge, problem, fresh(source)))

    def test_a_program_that_is_not_utf_8_gets_a_verdict(self, judge: Judge):
        verdict = verdict_of(judge, stdin_problem(("a", "a")), Program("x = '\ud800'"))
        assert verdict.status in (Status.COMPILE_ERROR, Status.WRONG_ANSWER)

    @pytest.mark.parametrize("fields", [{"profile": "magic"}, {"checker": "magic"}, {"language": "cobol"}], ids=str)
    def test_a_problem_that_cannot_be_judged_is_refused_at_once(self, judge: Judge, fields: dict[str, Any]):
        problem = stdin_problem(("a", "a"), **fields)
        with pytest.raises(InputError, match="must be"):
            judge.check(problem)
        with pytest.raises(InputError, match="must be"):
            judge.submit(JudgeJob(problem, Program(ECHO, problem.language)))

    @pytest.mark.parametrize(
        "job",
        [
            JudgeJob(stdin_problem(("a", "a")), Program(ECHO, "cpp")),
            JudgeJob(stdin_problem(("a", "a")), Program(ECHO), tests="some"),
            JudgeJob(stdin_problem(("a", "a")), Program(ECHO), tests="longest:0"),
        ],
        ids=["language", "tests", "longest"],
    )
    def test_a_malformed_job_is_refused_at_once(self, judge: Judge, job: JudgeJob):
        with pytest.raises(InputError, match="must be"):
            judge.submit(job)

    def test_a_problem_that_can_be_judged_passes_the_check_each_time(self, judge: Judge):
        problem = stdin_problem(("a", f"{next(_numbers)}"))
        judge.check(problem)
        judge.check(replace(problem))

    def test_a_trace_has_the_final_values(self, judge: Judge):
        problem = stdin_problem(("3", "6"), ("4", "8"))
        job = JudgeJob(problem, Program("x = int(input())\ny = 2 * x\nprint(y)"), "t")
        trace = judge.trace(job, 1).result(DEADLINE_S)
        assert (trace.status, trace.problem_id, trace.id, trace.test) == (TraceStatus.FINISHED, "p", "t", 1)
        assert trace.values == {"x": 4, "y": 8}

    def test_a_missing_test_cannot_be_traced(self, judge: Judge):
        with pytest.raises(InputError, match="no such test"):
            judge.trace(JudgeJob(stdin_problem(("3", "6")), Program("x = 1"), "t"), 1)
        with pytest.raises(InputError, match="no such test"):
            judge.trace(JudgeJob(stdin_problem(("3", "6")), Program("x = 1"), "t"), -1)

    def test_level_and_state_are_available(self, judge: Judge):
        assert judge.level in LEVELS
        assert "judged" in judge.state()
