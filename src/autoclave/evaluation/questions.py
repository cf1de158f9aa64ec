"""Questions of a benchmark and their grading: problems are judged, traces are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from autoclave.config import BenchmarkConfig
from autoclave.core import AlignmentSample, CallTests, CheckTests, Problem, Program, Reward, Status, Verdict
from autoclave.evaluation.prompts import prompt_of
from autoclave.evaluation.responses import Response
from autoclave.evaluation.submissions import SubmissionOf, completion, rule_of, without_thinking
from autoclave.judge import Judge, JudgeJob
from autoclave.problems.prompts import Messages
from autoclave.tasks import TraceInference
from autoclave.tasks.execution_semantics import BAD_FORMAT

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """Description of one question for tables, pages and exports. `preamble` is code that programs may count on."""

    id: str
    difficulty: str = ""
    released: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    title: str = ""
    statement: str = ""
    starter_code: str = ""
    preamble: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """Grade of a response.

    Attributes:
        status: of the verdict, or `exact`, `wrong` and `bad_format` where values are compared; empty without a verdict.
        score: 1 or 0, or the share of tests passed; None without a verdict.
        tests_passed: share of the tests that ran; None where none does.
        submission: what was judged; None where there was nothing.
        message: what the judge says; of a fault, what it was.
    """

    status: str
    score: float | None
    tests_passed: float | None = None
    submission: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a model is asked. `grade` starts at once."""

    about: About
    messages: Messages
    grade: Callable[[Response], Future[Grade]] = field(repr=False)


def problem_questions(problems: Sequence[Problem], config: BenchmarkConfig, judge: Judge) -> list[Question]:
    """Each problem as it is asked, in order.

    Raises:
        ConfigError: there is no such prompt.
        InputError: a problem cannot be judged here.
        HostError: this host lacks what judging needs.
    """
    ask, rule = prompt_of(config.prompt, config.system), rule_of(config.extraction, config.stops)
    for problem in problems:
        for each in {problem.profile, config.profile_with_numpy or problem.profile}:
            judge.check(replace(problem, profile=each))
    return [
        Question(
            about(problem), ask(problem), partial(_judged, problem, _with_numpy(problem, config), rule, config, judge)
        )
        for problem in problems
    ]


def _with_numpy(problem: Problem, config: BenchmarkConfig) -> Problem:
    """The problem as programs that name numpy are judged: one object for all of them, since judges know it by that."""
    return replace(problem, profile=config.profile_with_numpy) if config.profile_with_numpy else problem


def trace_questions(
    alignment_samples: Sequence[tuple[Problem, AlignmentSample]], config: BenchmarkConfig
) -> list[Question]:
    """Prediction of what a program returns or prints, and the final values of its variables, in order.

    Source: Jiang et al., CodeRL+, appendix C (Exact@1).
    """
    task = TraceInference()
    questions: list[Question] = []
    for problem, alignment_sample in alignment_samples:
        item = task.item(alignment_sample)

        def grade(response: Response, item=item) -> Future[Grade]:
            answer = _answer_of(response, config)
            return _then(task.reward(item, answer), lambda reward: _compared(answer, reward))

        asked = replace(
            about(problem), id=item.id, statement=item.messages[-1]["content"], starter_code="", preamble=""
        )
        questions.append(Question(asked, tuple(dict(message) for message in item.messages), grade))
    return questions


def about(problem: Problem) -> About:
    """Description of a problem."""
    tests = problem.tests
    return About(
        problem.id,
        problem.difficulty,
        problem.released.isoformat() if problem.released else "",
        problem.source,
        tuple(problem.tags),
        statement=problem.statement,
        starter_code=problem.starter_code,
        preamble=tests.preamble if isinstance(tests, CallTests | CheckTests) else "",
    )


def _judged(
    problem: Problem,
    with_numpy: Problem,
    rule: SubmissionOf,
    config: BenchmarkConfig,
    judge: Judge,
    response: Response,
) -> Future[Grade]:
    submission = _submission(problem, rule, config, response)
    if submission is None:
        settled: Future[Grade] = Future()
        settled.set_result(Grade(Status.BAD_FORMAT, 0.0, 0.0, None, "nothing to judge in the response"))
        return settled
    job = JudgeJob(
        with_numpy if "numpy" in submission else problem,
        Program(submission, problem.language),
        tests=config.tests,
        stop_at_failure=config.score == "all_tests",
    )
    return _then(judge.submit(job), lambda verdict: _graded(verdict, submission, config))


def _submission(problem: Problem, rule: SubmissionOf, config: BenchmarkConfig, response: Response) -> str | None:
    if response.form == "submission":
        return response.text
    if response.form == "completion":
        return completion((), problem, response.text)
    return rule(problem, _answer_of(response, config))


def _graded(verdict: Verdict, submission: str, config: BenchmarkConfig) -> Grade:
    if verdict.status is None:
        assert verdict.fault is not None
        return Grade("", None, None, submission, f"{verdict.fault.kind}: {verdict.fault.detail}")
    score = verdict.passed_share if config.score == "share_of_tests" else float(verdict.is_accepted)
    ran_all = config.score == "share_of_tests" or verdict.is_accepted
    return Grade(verdict.status, score, verdict.passed_share if ran_all else None, submission, verdict.message)


def _compared(answer: str, reward: Reward) -> Grade:
    submission = None if reward.reason == BAD_FORMAT else answer.rstrip().rpartition("\n")[2]
    return Grade(reward.reason, reward.value, None, submission)


def _then(future: Future[T], make: Callable[[T], Grade]) -> Future[Grade]:
    """Future of `make` applied to the result."""
    made: Future[Grade] = Future()

    def finish(done: Future[T]) -> None:
        try:
            made.set_result(make(done.result()))
        except BaseException as error:  # noqa: BLE001  it is raised where the grade is waited for
            made.set_exception(error)

    future.add_done_callback(finish)
    return made


def _answer_of(response: Response, config: BenchmarkConfig) -> str:
    return without_thinking(response.text, config.thinking_end, is_opened=config.thinking_opened)
