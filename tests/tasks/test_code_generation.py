"""Rewards of responses: by a scripted judge for the rules, and by the real one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.config import CodeGenerationConfig, JudgeConfig, SandboxConfig
from autoclave.core import (
    CheckTests,
    Fault,
    InputError,
    IsolationError,
    JudgeFault,
    Observation,
    Problem,
    Reward,
    Status,
    StdinCase,
    StdinTests,
    TestResult,
    Verdict,
)
from autoclave.judge import Judge, JudgeJob, LocalJudge
from autoclave.tasks import CodeGeneration
from tests.training_parts import DEADLINE_S

PROBLEM = Problem(
    statement="Print the sum of two numbers.",
    tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n"), StdinCase("5 6\n", "11\n"), StdinCase("0 3\n", "3\n")]),
    id="sum",
)
RIGHT = "print(sum(map(int, input().split())))"


class ScriptedJudge:
    """A `Judge` that gives the same answer to every job and keeps the jobs."""

    level = "sealed"

    def __init__(self, answer: Verdict | BaseException | None = None) -> None:
        self.jobs: list[JudgeJob] = []
        self.future: Future[Verdict] = Future()
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        elif answer:
            self.future.set_result(answer)

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self.jobs.append(job)
        return self.future

    def close(self) -> None: ...

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...


def verdict(status: Status, *tests: Status) -> Verdict:
    return Verdict.of(status, tests=[TestResult(index, each, 0.1, 0.1, 8.0) for index, each in enumerate(tests)])


def reward_of(judge: Judge, response: str, **settings: str) -> Reward:
    task = CodeGeneration(judge, CodeGenerationConfig(**settings))
    return task.reward(task.item(PROBLEM), response).result(DEADLINE_S)


def fenced(source: str) -> str:
    return f"It is easy.\n```python\n{source}\n```\n"


# --- By the rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"reward": "fraction"}])
def test_a_response_without_a_program_earns_0_and_nothing_runs(settings):
    judge = ScriptedJudge()
    reward = reward_of(judge, "I cannot do that.", **settings)
    assert (reward.value, reward.reason) == (0.0, "bad_format")
    assert reward.verdict.problem_id == "sum"
    assert judge.jobs == []


def test_an_accepted_program_earns_1():
    reward = reward_of(ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED)), fenced(RIGHT))
    assert (reward.value, reward.reason, reward.parts) == (1.0, "accepted", {"tests_passed": 1.0})


def test_a_binary_reward_is_0_however_many_tests_passed():
    judge = ScriptedJudge(verdict(Status.WRONG_ANSWER, Status.ACCEPTED, Status.ACCEPTED, Status.WRONG_ANSWER))
    reward = reward_of(judge, fenced(RIGHT))
    assert (reward.value, reward.reason) == (0.0, "wrong_answer")
    assert reward.parts["tests_passed"] == pytest.approx(2 / 3)


def test_a_fraction_is_the_share_of_tests_that_passed():
    judge = ScriptedJudge(verdict(Status.TIME_LIMIT, Status.ACCEPTED, Status.TIME_LIMIT, Status.ACCEPTED))
    assert reward_of(judge, fenced(RIGHT), reward="fraction").value == pytest.approx(2 / 3)


def test_a_fraction_of_no_tests_is_0():
    assert reward_of(ScriptedJudge(verdict(Status.COMPILE_ERROR)), fenced("("), reward="fraction").value == 0


@pytest.mark.parametrize(("reward", "stops"), [("binary", True), ("fraction", False)])
def test_only_a_binary_reward_lets_the_judge_stop_at_the_first_failure(reward, stops):
    judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
    reward_of(judge, fenced(RIGHT), reward=reward)
    assert judge.jobs[0].stop_at_failure is stops


def test_a_fault_of_the_judge_gives_the_reward_none():
    reward = reward_of(ScriptedJudge(Verdict.none(Fault("sandbox", "no cell"))), fenced(RIGHT), reward="fraction")
    assert (reward.value, reward.reason) == (None, "no_verdict")
    assert reward.verdict.fault == Fault("sandbox", "no cell")


def test_an_exception_of_the_judge_is_that_of_the_reward():
    with pytest.raises(OSError, match="gone"):
        reward_of(ScriptedJudge(OSError("gone")), fenced(RIGHT))


def test_a_verdict_that_is_cancelled_cancels_the_reward():
    judge = ScriptedJudge()
    task = CodeGeneration(judge, CodeGenerationConfig())
    reward = task.reward(task.item(PROBLEM), fenced(RIGHT))
    judge.future.cancel()
    assert reward.cancelled()


def test_the_job_names_the_tests_that_were_asked_for():
    judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
    reward_of(judge, fenced(RIGHT), tests="longest:2")
    assert (judge.jobs[0].tests, judge.jobs[0].problem, judge.jobs[0].id) == ("longest:2", PROBLEM, "sum")


@pytest.mark.parametrize(
    ("extraction", "source"),
    [
        ("last_fence", "second"),  # the last block that is tagged as Python
        ("lcb", "third"),  # between the last two lines with backticks
        ("whole", "```python\nfirst\n```\n```python\nsecond\n```\n```\nthird\n```"),
    ],
)
def test_the_program_is_found_by_the_rule_of_the_settings(extraction, source):
    judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
    reward_of(judge, "```python\nfirst\n```\n```python\nsecond\n```\n```\nthird\n```", extraction=extraction)
    assert judge.jobs[0].program.source == source


def test_an_item_carries_the_prompt_of_the_template():
    plain = CodeGeneration(ScriptedJudge(), CodeGenerationConfig(template="plain")).item(PROBLEM)
    assert plain.messages == ({"role": "user", "content": PROBLEM.statement},)
    assert (plain.task, plain.id, plain.group_key) == ("code_generation", "sum", "sum")
    coded = CodeGeneration(ScriptedJudge(), CodeGenerationConfig(template="code")).item(PROBLEM)
    assert [message["role"] for message in coded.messages] == ["system", "user"]


# --- By the real judge ---------------------------------------------------------------------------------------------


# --- Episodes ------------------------------------------------------------------------------------------------------


def observed(judge: Judge, response: str, problem: Problem = PROBLEM, **settings: int) -> Observation:
    task = CodeGeneration(judge, CodeGenerationConfig(turns=3, **settings))
    return task.environment(task.item(problem)).step(response).result(DEADLINE_S)


def test_only_public_tests_are_judged_before_the_last_turn_and_one_test_stays_hidden():
    for public_tests, judged in ((1, 1), (2, 2), (9, 2)):
        judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
        assert observed(judge, fenced(RIGHT), public_tests=public_tests) == Observation((), is_end=True)
        (job,) = judge.jobs
        assert job.problem.tests.cases == PROBLEM.tests.cases[:judged]


def test_what_failed_is_told_with_the_public_test_and_no_other():
    judge = ScriptedJudge(replace(verdict(Status.WRONG_ANSWER, Status.WRONG_ANSWER), failing_test=0, message="differs"))
    found = observed(judge, fenced("print(4)"))
    assert found.messages == ({"role": "user", "content": "wrong answer: differs\nInput:\n1 2\n\nExpected:\n3\n"},)


def test_problems_with_the_same_tests_are_judged_in_their_own_languages():
    judge = ScriptedJudge(verdict(Status.ACCEPTED, Status.ACCEPTED))
    task = CodeGeneration(judge, CodeGenerationConfig(turns=2))
    for problem in (PROBLEM, replace(PROBLEM, language="cpp")):
        task.environment(task.item(problem)).step(fenced(RIGHT)).result(DEADLINE_S)
    assert [job.program.language for job in judge.jobs] == ["python", "cpp"]


def test_long_inputs_and_outputs_are_cut():
    tests = StdinTests("stdin", [StdinCase("1" * 5000, "2" * 5000), StdinCase("", "")])
    judge = ScriptedJudge(replace(verdict(Status.WRONG_ANSWER, Status.WRONG_ANSWER), failing_test=0))
    told = observed(judge, fenced(RIGHT), replace(PROBLEM, tests=tests)).messages[0]["content"]
    assert len(told) < 2200


@pytest.mark.parametrize(
    ("settings", "name"), [({"turns": 2, "tests": "longest:1"}, "tests"), ({"public_tests": 2}, "public_tests")]
)
def test_settings_of_turns_that_would_not_do_what_they_say_are_refused(settings, name):
    with pytest.raises(ValueError, match=f"{name} = .* turns above 1"):
        CodeGenerationConfig(**settings)


def test_an_answer_without_a_program_is_told_so_and_nothing_runs():
    judge = ScriptedJudge(verdict(Status.ACCEPTED))
    assert observed(judge, "no program").messages[0]["content"] == "The answer has no program."
    assert not judge.jobs


def test_a_fault_on_public_tests_is_one_of_the_environment():
    with pytest.raises(JudgeFault, match=r"no verdict on public tests: .*x"):
        observed(ScriptedJudge(Verdict.none(Fault("sandbox", "x"))), fenced(RIGHT))


def test_the_last_turn_is_not_judged_on_public_tests():
    judge = ScriptedJudge(replace(verdict(Status.WRONG_ANSWER, Status.WRONG_ANSWER), failing_test=0))
    task = CodeGeneration(judge, CodeGenerationConfig(turns=2))
    environment = task.environment(task.item(PROBLEM))
    seen = [environment.step(fenced(RIGHT)).result(DEADLINE_S) for _ in range(2)]
    assert [(each.is_end, each.ended_by) for each in seen] == [(False, ""), (True, "turns")]
    assert len(judge.jobs) == 1


def test_the_share_of_tests_leaves_out_those_that_the_policy_can_have_read():
    shares: dict[int, float | None] = {}
    for turns in (1, 2):
        found = verdict(Status.WRONG_ANSWER, Status.ACCEPTED, Status.WRONG_ANSWER, Status.WRONG_ANSWER)
        task = CodeGeneration(ScriptedJudge(found), CodeGenerationConfig(turns=turns, reward="fraction"))
        shares[turns] = task.reward(task.item(PROBLEM), fenced(RIGHT)).result(DEADLINE_S).value
    assert shares == {1: 1 / 3, 2: 0.0}


def test_problems_that_would_have_no_hidden_test_have_one_turn():
    single = replace(PROBLEM, tests=StdinTests("stdin", PROBLEM.tests.cases[:1]))
    check = replace(PROBLEM, tests=CheckTests("check", "f", "def check(f): pass", "check(f)"))
    for problem in (single, check):
        assert observed(ScriptedJudge(), fenced(RIGHT), problem).is_end


@pytest.fixture(scope="module")
def real_judge() -> Iterator[LocalJudge]:
    try:
        judge = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with judge:
        yield judge


@pytest.mark.parametrize(
    ("source", "value", "reason"),
    [
        (RIGHT, 1.0, "accepted"),
        ("print(3)", 2 / 3, "wrong_answer"),
        ("import sys; sys.exit(0)", 0.0, "wrong_answer"),
        ("print(", 0.0, "compile_error"),
        ("print(1 / 0)", 0.0, "runtime_error"),
    ],
)
def test_the_real_judge_rewards_programs(real_judge, source, value, reason):
    reward = reward_of(real_judge, fenced(source), reward="fraction")
    assert (reward.value, reward.reason) == (pytest.approx(value), reason)


def test_a_problem_that_cannot_be_judged_is_refused_at_once(real_judge):
    task = CodeGeneration(real_judge, CodeGenerationConfig())
    broken = Problem(statement="Empty.", tests=StdinTests("stdin", []), id="empty")
    with pytest.raises(InputError):
        task.reward(task.item(broken), fenced(RIGHT))


@settings(max_examples=15, deadline=None)
@given(public=st.integers(1, 4), answers=st.lists(st.integers(0, 9), min_size=1, max_size=4), order=st.randoms())
def test_what_a_hidden_test_expects_is_never_read(real_judge, public: int, answers: list[int], order):
    """The observation is that of other hidden tests, whatever the program prints for which input."""
    hidden = [f"hidden {order.randrange(1 << 30)}" for _ in range(5 - public)]
    shown = [str(n) for n in range(public)]
    program = fenced(f"print({answers!r}[int(input()) % {len(answers)}])")
    told = []
    for outputs in (hidden, ["other"] * len(hidden)):
        cases = [StdinCase(str(n), output) for n, output in enumerate([*shown, *outputs])]
        problem = Problem(id="five", statement="s", tests=StdinTests("stdin", cases))
        told.append(observed(real_judge, program, problem, public_tests=public))
    assert told[0] == told[1]
    assert not any(text in str(told[0]) for text in hidden)
