"""Questions of a benchmark and their grading: problems are judged, traces are compared."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from autoclave.config import BenchmarkConfig
from autoclave.core import AlignmentSample, ConfigError, Program, Reward
from autoclave.core.futures import chained, completed
from autoclave.core.json import nearest
from autoclave.core.problem import CallTests, CheckTests, Problem
from autoclave.core.verdict import Status, Verdict
from autoclave.evaluation.responses import Response
from autoclave.evaluation.submissions import SubmissionOf, completion, rule_of, without_thinking
from autoclave.judge import Judge, JudgeJob
from autoclave.problems.prompts import ANSWER_BLOCK, SYSTEM, Messages, fenced, plain_messages, problem_messages
from autoclave.tasks import TraceInference
from autoclave.tasks.execution_semantics import BAD_FORMAT


@dataclass(frozen=True, slots=True)
class QuestionInfo:
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
        tests_passed: share of the tests that ran; None if no test ran.
        submission: the judged program or answer; None if the response has none.
        message: message of the verdict, or kind and detail of the fault.
    """

    status: str
    score: float | None
    tests_passed: float | None = None
    submission: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and the grading of its responses. `grade` starts at once."""

    info: QuestionInfo
    messages: Messages
    grade: Callable[[Response], Future[Grade]] = field(repr=False)


def problem_questions(problems: Sequence[Problem], config: BenchmarkConfig, judge: Judge) -> list[Question]:
    """Return the question of each problem, in order.

    Raises:
        ConfigError: the prompt does not exist.
        InputError: a problem cannot be judged here.
        HostError: this host misses something that judging needs.
    """
    ask, rule = prompt_of(config.prompt, config.system), rule_of(config.extraction, config.stops)
    questions: list[Question] = []
    for problem in problems:
        with_numpy = problem  # one object each, since judges cache by identity
        judge.check(problem)
        if config.profile_with_numpy:
            judge.check(with_numpy := replace(problem, profile=config.profile_with_numpy))
        grade = partial(_judged, problem, with_numpy, rule, config, judge)
        questions.append(Question(info_of(problem), ask(problem), grade))
    return questions


def trace_questions(samples: Sequence[tuple[Problem, AlignmentSample]], config: BenchmarkConfig) -> list[Question]:
    """Prediction of what a program returns or prints, and the final values of its variables, in order.

    Source: Jiang et al., CodeRL+, appendix C (Exact@1).
    """
    task = TraceInference()
    questions: list[Question] = []
    for problem, sample in samples:
        item = task.item(sample)

        def grade(response: Response, item=item) -> Future[Grade]:
            answer = _answer_of(response, config)
            return chained(task.reward(item, answer), lambda reward: _compared(answer, reward))

        info = replace(
            info_of(problem), id=item.id, statement=item.messages[-1]["content"], starter_code="", preamble=""
        )
        questions.append(Question(info, tuple(dict(message) for message in item.messages), grade))
    return questions


def info_of(problem: Problem) -> QuestionInfo:
    tests = problem.tests
    return QuestionInfo(
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
    problem: Problem, with_numpy: Problem, rule: SubmissionOf, config: BenchmarkConfig, judge: Judge, response: Response
) -> Future[Grade]:
    submission = _submission(problem, rule, config, response)
    if submission is None:
        return completed(Grade(Status.BAD_FORMAT, 0.0, 0.0, None, "the response has no program or answer"))
    job = JudgeJob(
        with_numpy if "numpy" in submission else problem,
        Program(submission, problem.language),
        tests=config.tests,
        stop_at_failure=config.score == "all_tests",
    )
    return chained(judge.submit(job), lambda verdict: _graded(verdict, submission, config))


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


def _answer_of(response: Response, config: BenchmarkConfig) -> str:
    return without_thinking(response.text, config.thinking_end, is_opened=config.thinking_opened)


_PLACE = re.compile(r"\{(\w+)\}")
_TESTS = "Your code has to pass these tests:\n\n{tests}"
_CONTINUE = (
    "This is the beginning of the program:\n\n{code}\n\nContinue it where it ends. Answer with what follows, and not "
    "with the beginning, in one fenced block:\n\n```python\n# the rest of the program\n```"
)
_VALUE = (
    "Work it out step by step. Then write the value as a Python literal on the last line, in this form:\n\n"
    "Answer: [1, 'a']"
)
_ARGUMENTS = (
    "Work it out step by step. Then write a call with literal arguments on the last line, in this form:\n\n"
    "Answer: f([1, 2], 'a')"
)


def _code_with_tests(problem: Problem) -> Messages:
    if not isinstance(problem.tests, CheckTests):
        return problem_messages(problem, "code")
    tests = _TESTS.format(tests=fenced(problem.tests.source.strip(), "python"))
    return _messages(SYSTEM, problem.statement, tests, ANSWER_BLOCK)


def _continuation(problem: Problem) -> Messages:
    beginning = _CONTINUE.format(code=fenced(problem.starter_code, "python"))
    return _messages(SYSTEM, problem.statement, beginning)


def _messages(system: str, *parts: str) -> Messages:
    user = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
    return ({"role": "system", "content": system}, user) if system else (user,)


PROMPTS: Mapping[str, Callable[[Problem], Messages]] = {
    "plain": lambda problem: plain_messages(problem.statement),
    "completion": lambda problem: plain_messages(problem.statement),
    "code": lambda problem: problem_messages(problem, "code"),
    "code_with_tests": _code_with_tests,
    "continuation": _continuation,
    "math": lambda problem: problem_messages(problem, "math"),
    "value": lambda problem: _messages("", problem.statement, _VALUE),
    "call_arguments": lambda problem: _messages("", problem.statement, _ARGUMENTS),
}
"""Messages of a problem, by the name of the prompt."""
_PLACES: Mapping[str, Callable[[Problem], str]] = {
    "statement": lambda problem: problem.statement,
    "starter_code": lambda problem: problem.starter_code,
    "entry_point": lambda problem: (
        problem.tests.entry_point if isinstance(problem.tests, CallTests | CheckTests) else ""
    ),
    "tests": lambda problem: problem.tests.source.strip() if isinstance(problem.tests, CheckTests) else "",
}


def prompt_of(name: str, system: str | None) -> Callable[[Problem], Messages]:
    """Return the function that makes the messages of a problem: the prompt `name`, or `name` itself as a template.

    `system` replaces the system message of the prompt; an empty one removes it.

    Raises ConfigError: `name` is not a prompt, and as a template it misses the statement.
    """
    ask = PROMPTS.get(name) or _template(name)

    def messages(problem: Problem) -> Messages:
        found = ask(problem)
        if system is None:
            return found
        others = tuple(message for message in found if message["role"] != "system")
        return ({"role": "system", "content": system}, *others) if system else others

    return messages


def _template(text: str) -> Callable[[Problem], Messages]:
    places = _PLACE.findall(text)
    if "statement" not in places:
        known = "" if places else f"{nearest(text, list(PROMPTS))}; "
        can = ", ".join(f"{{{name}}}" for name in _PLACES)
        raise ConfigError(f"prompt = {text!r}: {known}a template needs {{statement}}; its placeholders are {can}")
    return lambda problem: plain_messages(
        _PLACE.sub(lambda place: _PLACES[place[1]](problem) if place[1] in _PLACES else place[0], text)
    )
