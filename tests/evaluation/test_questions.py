"""Judging of responses: all share one problem object, since judges cache by identity."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

from autoclave.config import BenchmarkConfig
from autoclave.core import Fault, Problem, StdinCase, StdinTests, Verdict
from autoclave.evaluation.questions import problem_questions
from autoclave.evaluation.responses import Response
from autoclave.judge import JudgeJob


class Judge:
    def __init__(self) -> None:
        self.jobs: list[JudgeJob] = []

    def check(self, problem: Problem) -> None:
        pass

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self.jobs.append(job)
        future: Future[Verdict] = Future()
        future.set_result(Verdict.none(Fault("test", "not judged")))
        return future


def test_programs_that_name_numpy_share_a_problem_with_the_profile_for_them():
    judge, problem = Judge(), Problem("s", StdinTests("stdin", [StdinCase("1", "1")]), id="p", profile="lcb")
    config = BenchmarkConfig(profile_with_numpy="plain_numpy")
    (question,) = problem_questions([problem], config, cast("Any", judge))
    for source in ("import numpy", "print(1)", "from numpy import *"):
        question.grade(Response(f"```python\n{source}\n```")).result(10)
    first, plain, second = (job.problem for job in judge.jobs)
    assert first is second
    assert plain is problem
    assert (first.profile, plain.profile) == ("plain_numpy", "lcb")
