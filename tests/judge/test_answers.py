r"""Final answers against expected ones: what is equal, what hostile answers earn, and whose fault it is.

What math-verify takes for equal is recorded here as it is, version 0.9.0, so that a new version shows where it differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import autoclave.judge.kinds.answer as answer_kind
import autoclave.judge.profiles as mathematics
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import AnswerTests, HostError, InputError, IsolationError, Problem, Program, Status, Verdict
from autoclave.judge import JudgeJob, LocalJudge, judge_file
from autoclave.judge.runners.answer_checker import (
    CodeRefusedError,
    _refuse_code,  # pyright: ignore[reportPrivateUsage]
)

Compared = Callable[..., Verdict]


@pytest.fixture(scope="module")
def answer_judge() -> Iterator[LocalJudge]:
    try:
        mathematics.mathematics_profile()
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1, time_limit_range=(0.5, 20.0)))
    except (HostError, IsolationError) as error:
        pytest.skip(f"this host cannot compare answers: {error}")
    with opened:
        yield opened


@pytest.fixture
def value_judge() -> Iterator[LocalJudge]:
    """A new judge for each test, for those that break it."""
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1, time_limit_range=(0.5, 20.0)))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def problem(expected: str, comparator: str = "math", **fields: object) -> Problem:
    tests = AnswerTests("answer", expected, comparator)  # pyright: ignore[reportArgumentType]
    return Problem("s", tests, **{"id": "p", "time_limit_s": 0.5} | fields)  # pyright: ignore[reportArgumentType]


def verdict_on(judge: LocalJudge, requested: Problem, answer: str) -> Verdict:
    return judge.submit(JudgeJob(requested, Program(answer), "x")).result(timeout=120)


# --- What is equal -------------------------------------------------------------------------------------------------

EQUAL = [
    ("1", "1"),
    ("1/2", "0.5"),
    ("1/2", r"\frac{1}{2}"),
    ("1/2", r"\frac12"),
    ("1/2", r"\dfrac{2}{4}"),
    ("0.5", r"50\%"),
    ("50", r"50\%"),  # the sign alone makes no difference
    ("1,000", "1000"),
    ("-7", "−7"),  # the minus sign of typography
    ("7", "$7$"),
    ("7", "07"),
    ("7", r"\boxed{7}"),
    (r"\sqrt{2}", "2^{1/2}"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("1,2", "2,1"),  # a list without brackets is a set
    ("(1,2)", "(1, 2)"),
    (r"(-\infty,3]", r"(-\infty, 3]"),
    ("x>3", "3<x"),
    ("(a+b)(a-b)", "a^2-b^2"),
    ("x+y=5", "2x+2y=10"),
    ("3", "x=3"),
    ("x=3", "3"),
    ("5", "5 cm"),  # units are dropped
    ("5", r"5\text{ cm}"),
    (r"\$5", "5"),
    (r"90^\circ", "90"),
    (r"\text{yes}", "yes"),
    ("no solution", "no solution"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\sum_{n=1}^{4} n", "10"),
]
DIFFERENT = [
    ("1", "2"),
    ("7", "-7"),
    ("1/3", "0.333"),
    ("1/3", "0.333333"),
    (r"\infty", r"-\infty"),
    (r"\infty", "10^{100}"),
    (r"\pi", "3.14159"),
    ("[1,2]", "[1,2)"),
    ("(1,2)", "(2,1)"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    ("x>3", r"x\ge 3"),
    ("yes", "no"),
    ("7", "7 or 8"),  # to hedge does not help
    ("7", "6, 7, 8"),
    ("7", r"\boxed{6}\boxed{8}"),
    ("7", "x"),
    ("7", r"7\ne 8"),
]


@pytest.mark.parametrize(("expected", "answer"), EQUAL)
def test_mathematics_that_means_the_same_is_accepted(answer_judge: LocalJudge, expected: str, answer: str):
    verdict = verdict_on(answer_judge, problem(expected), answer)
    assert (verdict.status, verdict.reward, verdict.message) == ("accepted", 1.0, "")


@pytest.mark.parametrize(("expected", "answer"), DIFFERENT)
def test_mathematics_that_means_something_else_is_wrong(answer_judge: LocalJudge, expected: str, answer: str):
    verdict = verdict_on(answer_judge, problem(expected), answer)
    assert (verdict.status, verdict.reward, verdict.message) == ("wrong_answer", 0.0, "the answer does not match")
    assert (verdict.failing_test, len(verdict.tests), verdict.level) == (0, 1, "sealed")


@pytest.mark.parametrize(("expected", "answer"), [("7", "07"), ("-7", "7"), ("0", "-0"), ("12", "21")])
def test_plain_integers_are_compared_without_a_cell_as_math_verify_does(
    value_judge: LocalJudge, expected: str, answer: str
):
    math_verify = pytest.importorskip("math_verify")
    verdict = verdict_on(value_judge, problem(expected), answer)
    read = [math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (expected, answer)]
    assert verdict.is_accepted == math_verify.verify(*read, timeout_seconds=None)
    assert not value_judge._validation.environments.spare_cells._cells


@pytest.mark.parametrize(
    ("expected", "answer", "status"),
    [
        ("[1, 2]", "[1,2]", "accepted"),
        ("{1, 2}", "{2, 1}", "accepted"),
        ("{'a': 1, 'b': None}", '{"b": None, "a": 1}', "accepted"),
        ("1", "1.0", "wrong_answer"),
        ("[True]", "[1]", "wrong_answer"),
        ("[1, 2]", "(1, 2)", "wrong_answer"),
        ("'a'", "a", "wrong_answer"),
        ("1", "__import__('os').getpid()", "wrong_answer"),
        ("1", "(" * 1500 + "1" + ")" * 1500, "wrong_answer"),
        ("1", "", "wrong_answer"),
    ],
)
def test_values_are_equal_when_their_types_are_too(answer_judge: LocalJudge, expected: str, answer: str, status: str):
    verdict = verdict_on(answer_judge, problem(expected, "value"), answer)
    assert (verdict.status, verdict.fault) == (status, None)


@pytest.mark.parametrize(
    ("answer", "status"), [(" a  b\n", "accepted"), ("a b c", "wrong_answer"), ("A b", "wrong_answer")]
)
def test_texts_are_equal_when_their_words_are(answer_judge: LocalJudge, answer: str, status: str):
    assert verdict_on(answer_judge, problem("a b", "text"), answer).status == status


# --- Hostile answers -----------------------------------------------------------------------------------------------

HOSTILE = {
    "tower": "9**9**9**9",
    "tower in LaTeX": "9^{9^{9^{9}}}",
    "factorial of a factorial": "((99999!)!)!",
    "sum": r"\sum_{n=1}^{10^{12}} n^n",
    "integral": r"\int_0^1 e^{x^{x^x}} dx",
    "code": "__import__('os').system('true')",
    "code in a text": r"\text{__import__('os').system('true')}",
    "code in a name": r"x_{__import__('os').system('true')}",
    "dunder": "7 .__class__",
    "fraction of nothing": r"\frac{}{}",
    "0/0": "0/0",
    "nothing known": r"\unknown{\unknown{7}",
    "not closed": r"\frac{1}{",
    "end of the box": r"7} \boxed{8",
    "digits of another script": "٨",
    "zero byte": "\0",
    "half of a pair": "8\ud800",
    "right to left": "\u202e8\u202c",
    "blanks": " ",
    "equation of unknowns": "a=b=c=d",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_a_wrong_one_and_no_fault(answer_judge: LocalJudge, answer: str):
    verdict = verdict_on(answer_judge, problem("7"), answer)
    assert (verdict.reward, verdict.fault) == (0.0, None)
    assert verdict.status in (Status.WRONG_ANSWER, Status.TIME_LIMIT, Status.MEMORY_LIMIT)


def test_a_comparison_that_the_answer_makes_too_expensive_fails_with_a_reason(answer_judge: LocalJudge):
    verdict = verdict_on(answer_judge, problem("7"), "{" * 400 + "7" + "}" * 400)
    assert (verdict.status, verdict.reward, verdict.fault) == ("time_limit", 0.0, None)
    assert verdict.message == "the comparison fails on the answer: CPU time limit"
    assert verdict_on(answer_judge, problem("7"), "14/2").is_accepted  # and the next one is not the worse for it


def test_an_answer_far_longer_than_what_is_expected_is_not_read(answer_judge: LocalJudge):
    verdict = verdict_on(answer_judge, problem("7"), "7" + " " * 1_000_000)
    assert (verdict.status, verdict.message) == ("wrong_answer", "the answer is far longer than what is expected")
    assert verdict.tests[0].cpu_s == 0


def test_no_message_tells_what_is_expected(answer_judge: LocalJudge):
    for answer in ("8", "{" * 400, "", "x" * 10_000):
        assert "123457" not in verdict_on(answer_judge, problem("123457"), answer).message


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os').system('true')",
        b"__import__('os')",
        "Symbol ('x')",
        "Integer (7 ).__class__",
        "from sympy import *\nimport os",
        "x",
        "[7]",
        "'%c'%7",
        "def monomial_mul(A, B):\n    return A.real",
        "def monomial_mul(A, B):\n    return open(A)",
        "def monomial_mul(A, B):\n    import os",
    ],
)
def test_a_text_that_is_not_arithmetic_is_never_compiled(source: str | bytes):
    with pytest.raises(CodeRefusedError):
        _refuse_code("compile", (source, "<string>"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("Integer (14 )/Integer (2 )", "<string>"),
        (b"Float ('0.5' )+Integer (1 )**Integer (2 )", b"<string>"),
        ("from sympy import *", "<string>"),
        (
            "def monomial_div(A, B):\n    (a0,) = A\n    if a0 < 0: return None\n    return (a0 - b0 if a0 else b0,)\n",
            "<string>",
        ),
        (b"import os", "/packages/sympy/solvers/solvers.py"),  # a module that is imported late
    ],
)
def test_arithmetic_and_modules_are_compiled(arguments: tuple[str | bytes, str | bytes]):
    _refuse_code("compile", arguments)


# --- Whose fault it is ---------------------------------------------------------------------------------------------


def failing_runner(monkeypatch: pytest.MonkeyPatch, *, when: str) -> None:
    """Have the cell of comparisons be killed where `when` says, a condition on the text that is read."""
    runner = answer_kind.ANSWER_CHECKER
    source = runner.source.replace(
        "def _canonical(",
        f"def _fail(text):\n    if {when}:\n        os.kill(os.getpid(), 9)\n    return text\n\n\ndef _canonical(",
    ).replace("ast.literal_eval(text.strip())", "ast.literal_eval(_fail(text).strip())")
    monkeypatch.setattr(answer_kind, "ANSWER_CHECKER", replace(runner, source=source))


def test_a_cell_that_dies_whatever_it_compares_gives_no_verdict(value_judge: LocalJudge, monkeypatch):
    failing_runner(monkeypatch, when="True")
    verdict = verdict_on(value_judge, problem("7", "value"), "7")
    assert (verdict.status, verdict.reward, verdict.fault.kind) == (None, None, "sandbox")


def test_an_answer_that_alone_makes_its_cell_die_gains_nothing(value_judge: LocalJudge, monkeypatch):
    failing_runner(monkeypatch, when="text == '8'")
    verdict = verdict_on(value_judge, problem("7", "value"), "8")
    assert (verdict.status, verdict.reward, verdict.fault) == ("runtime_error", 0.0, None)


def test_a_cell_that_is_gone_between_two_answers_is_replaced(value_judge: LocalJudge):
    assert verdict_on(value_judge, problem("7", "value"), "7").is_accepted
    ((_, cell),) = value_judge._validation.environments.spare_cells._cells.values()
    cell.close()
    assert verdict_on(value_judge, problem("8", "value"), "8").is_accepted


def test_one_cell_serves_many_answers(value_judge: LocalJudge):
    def spare() -> list[int]:
        return [id(cell) for _, cell in value_judge._validation.environments.spare_cells._cells.values()]

    verdict_on(value_judge, problem("7", "value"), "7")
    first = spare()
    verdict_on(value_judge, problem("[8]", "value"), "9")
    assert (len(first), spare()) == (1, first)


def test_an_expected_answer_that_cannot_be_read_is_the_fault_of_the_problem(answer_judge: LocalJudge):
    verdict = verdict_on(answer_judge, problem("{" * 400 + "7" + "}" * 400), "7")
    assert (verdict.status, verdict.reward, verdict.fault.kind) == (None, None, "problem")
    assert verdict.fault.detail == "problem 'p': tests.expected cannot be read: CPU time limit"


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (problem(" "), r"tests\.expected = ' ': must not be blank"),
        (problem("[1,", "value"), r"tests\.expected = '\[1,': must be a Python literal"),
        (problem("7", "text", checker="tokens"), r"checker = 'tokens': answers have a comparator instead"),
    ],
)
def test_a_problem_that_cannot_be_judged_is_refused_at_once(value_judge: LocalJudge, requested: Problem, message: str):
    with pytest.raises(InputError, match=f"^problem 'p': {message}"):
        value_judge.submit(JudgeJob(requested, Program("7")))


def test_without_math_verify_the_message_says_how_to_get_it(value_judge: LocalJudge, monkeypatch):
    monkeypatch.setattr(mathematics, "_PACKAGES", ("no_such_math_verify",))
    mathematics.mathematics_profile.cache_clear()
    try:
        with pytest.raises(HostError, match=r"(?s)^problem 'p': tests\.comparator = 'math': .*pip install .*\[math\]"):
            value_judge.submit(JudgeJob(problem("7"), Program("7")))
        assert verdict_on(value_judge, problem("7", "text"), "7").is_accepted  # the others need nothing
    finally:
        mathematics.mathematics_profile.cache_clear()


# --- In files ------------------------------------------------------------------------------------------------------


def test_answers_in_files_are_taken_from_responses_or_as_they_are(value_judge: LocalJudge, tmp_path: Path):
    requested = problem("[7]", "value")
    given = [
        {"response": "so \\boxed{[7]}"},
        {"response": "Answer: [7]"},
        {"response": "```python\n[7]\n```"},
        {"source": "[7]"},
    ]
    (tmp_path / "problems.jsonl").write_text(json.dumps(requested.to_json()) + "\n")
    lines = [json.dumps({"problem_id": "p"} | line) + "\n" for line in given]
    (tmp_path / "programs.jsonl").write_text("".join(lines))
    paths = [tmp_path / name for name in ("problems.jsonl", "programs.jsonl", "verdicts.jsonl")]
    judge_file(value_judge, *paths)
    verdicts = [json.loads(line) for line in paths[2].read_text().splitlines()]
    assert [verdict["status"] for verdict in verdicts] == ["accepted", "accepted", "bad_format", "accepted"]
    assert verdicts[2]["message"] == "the response holds no final answer"
    judge_file(value_judge, *paths, answer="boxed")
    assert json.loads(paths[2].read_text().splitlines()[1])["status"] == "bad_format"
