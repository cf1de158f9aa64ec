"""No answer that differs from the expected one by construction is accepted, and none that is equal is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from autoclave.judge.profiles import ANSWER_CHECKER
from tests.judge.perturbed_answers import cases
from tests.real_problems import NEEDS_DATA, records

pytest.importorskip("math_verify")

_COMPARE = """
import json, logging, sys
logging.disable(logging.CRITICAL)
comparator = prepare(b"math", None)()
for line in sys.stdin:
    expected, answer = json.loads(line)
    print(comparator.matches(comparator.expected(expected), answer), flush=True)
"""


def accepted(pairs: list[tuple[str, str]]) -> list[bool]:
    """What the code of the cell says of each pair, in one process."""
    content = "".join(json.dumps(pair) + "\n" for pair in pairs)
    command = [sys.executable, "-c", ANSWER_CHECKER.source + _COMPARE]
    done = subprocess.run(command, input=content, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line == "True" for line in done.stdout.splitlines()]


def wrongly_judged(number: int, seed: int) -> list[tuple[str, str, str, bool]]:
    found = list(cases(number, seed))
    judged = accepted([(expected, answer) for _, (expected, answer, _) in found])
    return [(kind, *case) for (kind, case), reported in zip(found, judged, strict=True) if reported is not case[2]]


def test_a_few_hundred_perturbed_answers_are_judged_as_they_were_made():
    assert not wrongly_judged(300, seed=2)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [3, 4])
def test_ten_thousand_perturbed_answers_are_judged_as_they_were_made(seed: int):
    assert not wrongly_judged(5000, seed)


WRONG = [
    (r"6.02\times10^{-23}", r"1.00\times10^{-23}"),
    ("0.0000001", "0.0000004"),
    ("(0.0000001,2)", "(0.0000004,2)"),
    ("x=0.0000001", "x=0.0000004"),
    ("12345678.5", "12345679.5"),
    (r"\pi\times10^{-20}", r"2\pi\times10^{-20}"),
    (r"\sqrt{2}", "1.41421356237"),
    ("7", "3=7"),
    ("7", "3=5=7"),
    ("7", "7==7"),
    ("7", r"3\equiv7"),
    ("7", r"6\implies 7"),
    ("7", "foo 7"),
    ("7", "9 7"),
    ("7", r"x \approx 7"),
    ("5", "2x=10"),
    ("x+y=5", "5"),
    ("x=y=3", "x=7=3"),
    ("x=5", "y=5"),
    (r"y=\sqrt{x}", "y^2=x"),
    ("x^2+1=0", "x^2+3=0"),
    ("x<5", "5<x"),
    ("(1,2)", "1,2"),
    ("(1,2)", r"\{1,2\}"),
    (r"1,2,\ldots,10", "1,2,10"),
    ("101_2", "101_3"),
    ("101_2", "101"),
    ("10 000", "10"),
    ("1 1/2", "1"),
    (r"5\text{ cm}", r"5\text{ m}"),
    (r"5\text{ cm}", r"5\text{ cm}^2"),
    (r"7\text{ more}", r"7\text{ fewer}"),
    ("2x+3t", "2x+3s"),
    ("5t", "5"),
    (r"\sin 20^\circ", r"\sin 20"),
    ("0.5", r"0.5\%"),
    ("f'(3)", "f(3)"),
    ("ABCD", "DCBA"),
    (r"0.\overline{3}", r"0.\overline{7}"),
]
RIGHT = [
    ("5", "x=5"),
    ("x=5", "5"),
    ("1,2", r"x=1\text{ or }x=2"),
    ("5", r"\angle A = 5"),
    ("1/2", r"P(A)=\frac12"),
    ("x+y=5", "5=x+y"),
    ("2x+2y=10", "x+y=5"),
    ("y=2x", "2x"),
    ("xy=1", "y=1/x"),
    ("2x<10", "x<5"),
    ("1<x<2", "2>x>1"),
    ("1<x<2", "(1,2)"),
    ("(1,2)", r"x\in(1,2)"),
    ("602000", r"6.02\times10^5"),
    ("10000", r"10\,000"),
    ("1 1/2", "3/2"),
    (r"12.5\%", "12.5"),
    (r"12.5\%", "0.125"),
    (r"\{100,200,300\}", r"\{300,200,100\}"),
    (r"5\text{ cm}", "5 centimeters"),
    (r"5\text{ cm}^2", r"5\text{ square centimeters}"),
    (r"\$5", "5 dollars"),
    (r"90^\circ", "90 degrees"),
    ("no solution", r"\text{No solution}"),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"),
    (r"0.\overline{3}", r"0.\overline{3}"),
]


def test_known_wrong_answers_of_each_kind_are_refused_and_other_spellings_accepted():
    judged = accepted([*WRONG, *RIGHT])
    assert [pair for pair, reported in zip(WRONG, judged, strict=False) if reported] == []
    assert [pair for pair, reported in zip(RIGHT, judged[len(WRONG) :], strict=True) if not reported] == []


@NEEDS_DATA
def test_answers_of_a_published_set_are_accepted_unchanged_and_refused_with_another_digit():
    answers = [str(row["answer"]) for row in records("aime24")]
    changed = [f"{answer[:-1]}{(int(answer[-1]) + 1) % 10}" for answer in answers]
    judged = accepted(
        [
            (answer, f"x = {other}")
            for others in (answers, changed)
            for answer, other in zip(answers, others, strict=True)
        ]
    )
    assert judged == [True] * len(answers) + [False] * len(answers)
