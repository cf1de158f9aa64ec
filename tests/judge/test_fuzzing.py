"""Whatever a program sends, whatever arguments and limits there are: no crash, no hang, no acceptance by accident."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import CallCase, CallTests, Ended, InputError, Outcome, Problem, Program, Status
from autoclave.judge import JudgeJob
from autoclave.judge.environments import Environments
from autoclave.judge.evaluation import prepare
from autoclave.judge.extraction import EXTRACTION_RULES
from autoclave.judge.kinds import kind_of
from autoclave.judge.messages import failure_of
from autoclave.judge.plain_data import NotPlainError, decode, encode
from tests.strategies import plain_values, problems

RUNS = settings(
    max_examples=100 if os.environ.get("AUTOCLAVE_SOAK") == "1" else 25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""Of tests that run a program for each example. The fixtures used are functions without a state."""

EXPECTED = [7, {"a": [1.5, None]}]
RIGHT = encode(["value", EXPECTED])
WORDS = [b"[", b"]", b"{", b"}", b'"', b",", b":", b'["value",', b'["error",', b"1", b"NaN", b'"$"', b'"v"', RIGHT]
scraps = st.lists(st.sampled_from(WORDS) | st.binary(max_size=4), max_size=12).map(b"".join)
ENVIRONMENTS = Environments(JudgeConfig())
mutants = st.builds(
    lambda start, stop, scrap: RIGHT[:start] + scrap + RIGHT[stop:],
    st.integers(0, len(RIGHT)),
    st.integers(0, len(RIGHT)),
    scraps,
)
answers = st.one_of(st.binary(max_size=40), scraps, mutants, st.just(RIGHT))
lengths = st.integers(0, 2**32 - 1) | st.integers(0, 60)
frames = answers.map(lambda answer: len(answer).to_bytes(4, "big") + answer)
streams = st.one_of(
    frames, st.binary(max_size=60), st.builds(lambda size, answer: size.to_bytes(4, "big") + answer, lengths, answers)
)


def is_right(answer: bytes) -> bool:
    try:
        return decode(answer) == ["value", EXPECTED]
    except NotPlainError:
        return False


@given(answers)
def test_an_answer_is_accepted_only_if_it_holds_the_expected_value(answer: bytes):
    tests = CallTests("call", "f", [CallCase([], EXPECTED)])
    status, message = kind_of(Problem("s", tests), ENVIRONMENTS)._compare(answer, 0, 3)
    assert (status is Status.ACCEPTED) == is_right(answer)
    assert message.isascii()
    assert len(message) < 100


@RUNS
@given(streams, st.integers(0, 255))
def test_bytes_on_the_channel_give_a_verdict_and_no_acceptance_by_accident(
    judged, call_problem, stream: bytes, code: int
):
    source = f"import os\ndef f():\n    os.write(3, {stream!r})\n    os._exit({code})"
    verdict = judged(call_problem("f", ([], EXPECTED)), source)
    size, answer = int.from_bytes(stream[:4], "big"), stream[4:]
    is_whole = len(stream) >= 4 and len(answer) >= size
    assert verdict.fault is None
    assert verdict.is_accepted == (code == 0 and is_whole and is_right(answer[:size]))


@RUNS
@example(b"setting up", 0)  # what the sandbox itself writes before a program runs
@example(b"memory MemoryError 1", 1)
@given(st.binary(max_size=300), st.integers(0, 255))
def test_any_account_can_only_word_a_failure(judged, stdin_problem, account: bytes, code: int):
    source = (
        f"import os, sys\nframe = sys._getframe()\nwhile 'test' not in frame.f_locals: frame = frame.f_back\n"
        f"frame.f_locals['test']._report({account!r})\nos._exit({code})"
    )
    verdict = judged(stdin_problem(("", "7")), source)
    assert (verdict.reward, verdict.fault) == (0.0, None)
    assert verdict.message.isprintable()
    assert "AttributeError" not in verdict.message  # the account was found
    assert len(verdict.message) < 100


@given(
    st.sampled_from(Ended),
    st.integers(0, 255) | st.none(),
    st.integers(0, 300) | st.none(),
    st.text(max_size=30) | st.from_regex(r"(disk|-) [A-Za-z]{1,12} [0-9]{1,8}", fullmatch=True),
)
def test_messages_are_short_printable_and_of_known_words(ended: Ended, code: Any, signal: Any, account: str):
    outcome = Outcome(ended, code, signal, b"", b"", 0, 0, 1.0, 1.0, 1.0, account)
    failure = failure_of(outcome, "\n" * 99)
    assert (failure is None) == (ended is Ended.EXITED and code == 0)
    if failure:
        assert failure[0] is not Status.ACCEPTED
        assert failure[1].isascii()
        assert 0 < len(failure[1]) < 100


@RUNS
@given(st.binary(max_size=200))
def test_bytes_on_standard_output_give_a_verdict(judged, stdin_problem, printed: bytes):
    source = f"import os\nos.write(1, {printed!r})"
    for checker in ("lcb", "exact", "tokens", "unordered", "float"):
        verdict = judged(stdin_problem(("", "seven 7"), checker=checker), source)
        assert (verdict.status, verdict.fault) == ("wrong_answer", None)


@RUNS
@given(st.lists(plain_values(), max_size=4))
@pytest.mark.parametrize("profile", ["lcb", "plain"])
def test_arguments_arrive_as_they_were_and_results_come_back(judged, call_problem, profile: str, arguments: list[Any]):
    problem = call_problem("f", (arguments, arguments), profile=profile)
    assert judged(problem, "def f(*arguments): return list(arguments)").status == "accepted"


@RUNS
@given(st.text(max_size=60))
def test_any_text_is_a_program_with_a_verdict(judged, stdin_problem, source: str):
    verdict = judged(stdin_problem(("", "not printed by accident")), source)
    assert (verdict.reward, verdict.fault) == (0.0, None)


@given(problems(), st.sampled_from(["all", "longest:1", "longest:3", "longest:0", "x"]))
def test_a_problem_is_judged_or_refused_by_name(problem: Problem, tests: str):
    job = JudgeJob(problem, Program("", problem.language), tests=tests)
    reason = f"problem {problem.id!r}: "
    try:
        prepared = prepare(job, kind_of(problem, ENVIRONMENTS), SandboxConfig(), JudgeConfig())
        is_fit = 1 <= len(prepared.indices) <= prepared.kind.num_tests()
    except InputError as error:
        is_fit = str(error).startswith(reason)
    assert is_fit


positive = st.floats(1e-3, 1e6)


@given(
    problems(),
    st.tuples(positive, positive).map(lambda pair: (min(pair), max(pair))),
    positive,
    st.integers(1, 1 << 20),
    st.floats(1e-3, 1e4),
)
def test_limits_are_positive_finite_and_within_the_settings(
    problem: Problem, time_limit_range: tuple[float, float], default_s: float, memory_mb: int, output_mb: float
):
    sandbox = SandboxConfig(memory_limit_mb=memory_mb, output_limit_mb=output_mb)
    judge = JudgeConfig(time_limit_range=time_limit_range, default_time_limit_s=default_s)
    plain = Problem(
        "s",
        CallTests("call", "f", [CallCase([], 1)]),
        time_limit_s=problem.time_limit_s,
        memory_limit_mb=problem.memory_limit_mb,
    )
    limits = prepare(JudgeJob(plain, Program("")), kind_of(plain, ENVIRONMENTS), sandbox, judge).limits
    assert time_limit_range[0] <= limits.exact.cpu_s <= time_limit_range[1]
    assert limits.exact.cpu_s < limits.first.cpu_s < limits.first.wall_s == limits.exact.wall_s < math.inf
    assert 1 <= limits.exact.memory_mb <= memory_mb
    assert limits.exact.output_bytes > 0


@given(st.text(), st.sampled_from(sorted(EXTRACTION_RULES)))
def test_any_response_holds_a_program_or_none(response: str, rule: str):
    program = EXTRACTION_RULES[rule](response)
    assert program is None or program in response


@given(plain_values())
def test_what_is_json_travels_as_json_reads_it(value: Any):
    assert decode(encode(value)) == json.loads(json.dumps(value))
