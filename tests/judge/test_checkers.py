"""How a problem names its checker, and checkers that problems bring along."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

from typing import Any

import pytest

from autoclave.core import CustomChecker, FloatChecker, InputError, Program
from autoclave.judge import JudgeJob
from autoclave.judge.special import checker_of


@pytest.mark.parametrize(
    ("checker", "rtol", "atol"),
    [
        ("float", 1e-6, 1e-6),
        ("float(1e-3, 0)", 1e-3, 0),
        ("float(rtol=1e-3, atol=1E-9)", 1e-3, 1e-9),
        ("float( atol = 2 , rtol = 0.5 )", 0.5, 2),
        ("float(0.,.5)", 0, 0.5),
        (FloatChecker("float", 1e-3, 0), 1e-3, 0),
    ],
)
def test_tolerances_are_read_in_each_spelling(stdin_problem, checker: Any, rtol: float, atol: float):
    rule = checker_of(stdin_problem(("", ""), checker=checker))
    assert rule.matches_text.keywords == rule.matches_value.keywords == {"rtol": rtol, "atol": atol}


@pytest.mark.parametrize(
    ("checker", "reason"),
    [
        ("magic", "checker = 'magic': must be one of lcb, exact, tokens, unordered, float, float(RTOL, ATOL)"),
        ("", "checker = '': must be one of"),
        ("float(1e-6)", "checker = 'float(1e-6)': must be float, float(RTOL, ATOL) or"),
        ("float(1, 2, 3)", "must be float, float"),
        ("float(rtol=1e-6, rtol=0)", "must be float, float"),
        ("float(rtol=0.1, 0)", "must be float, float"),
        ("float(1e, 0)", "must be float, float"),
        ("float(nan, 0)", "must be float, float"),
        ("float(1, 0)", "checker.rtol = 1.0: must be at least 0 and less than 1"),
        ("float(-0.1, 0)", "checker.rtol = -0.1: must be at least 0"),
        ("float(0, -1)", "checker.atol = -1.0: must be at least 0"),
        ("float(0, 1e999)", "checker.atol = inf: must be at least 0 and finite"),
        (FloatChecker("float", float("nan"), 0), "checker.rtol = nan: must be at least 0"),
        (FloatChecker("float", 0, float("nan")), "checker.atol = nan: must be at least 0"),
    ],
)
def test_a_checker_that_makes_no_sense_is_refused_at_once(judge, stdin_problem, checker: Any, reason: str):
    problem = stdin_problem(("", ""), checker=checker)
    for refuse in (judge.check, lambda problem: judge.submit(JudgeJob(problem, Program("")))):
        with pytest.raises(InputError) as caught:
            refuse(problem)
        assert str(caught.value).startswith("problem 'p': checker")
        assert reason in str(caught.value)


@pytest.mark.parametrize("checker", ["exact", "tokens"])
def test_checkers_of_text_are_refused_for_calls(judge, call_problem, checker: str):
    with pytest.raises(
        InputError, match=rf"problem 'p': checker = '{checker}': compares text; for calls there are lcb"
    ):
        judge.check(call_problem("f", ([], 1), checker=checker))


@pytest.mark.parametrize(
    ("checker", "printed", "status"),
    [
        ("float", "0.3333333", "accepted"),
        ("float", "0.3334", "wrong_answer"),
        ("float(1e-2, 0)", "0.3334", "accepted"),
        (FloatChecker("float", 0, 0.001), "0.3334", "accepted"),
        ("float", "nan", "wrong_answer"),
        ("unordered", "0.333333333", "accepted"),
    ],
)
def test_printed_numbers_are_compared_with_tolerance(judged, stdin_problem, checker: Any, printed: str, status: str):
    verdict = judged(stdin_problem(("", "0.333333333\n"), checker=checker), f"print('{printed}')")
    assert verdict.status == status


@pytest.mark.parametrize(
    ("checker", "profile", "value", "expected", "status"),
    [
        ("lcb", "lcb", "(True, 2.0)", [1, 2], "accepted"),
        ("lcb", "plain", "[1, 2]", [1, 2], "accepted"),
        ("lcb", "plain", "(1, 2)", [1, 2], "wrong_answer"),
        ("lcb", "plain", "[True, 2]", [1, 2], "wrong_answer"),
        ("lcb", "plain", "float('nan')", float("nan"), "accepted"),
        ("lcb", "lcb", "float('nan')", float("nan"), "wrong_answer"),
        ("float", "lcb", "{'a': [0.1 + 0.2]}", {"a": [0.3]}, "accepted"),
        ("float", "plain", "[0.31]", [0.3], "wrong_answer"),
        ("unordered", "lcb", "[[3], [1]]", [[1], [3]], "accepted"),
        ("unordered", "plain", "[1.0, 2]", [2, 1], "wrong_answer"),
    ],
)
def test_results_are_compared_by_checker_and_profile(
    judged, call_problem, checker: str, profile: str, value: str, expected: Any, status: str
):
    problem = call_problem("f", ([], expected), checker=checker, profile=profile)
    assert judged(problem, f"def f(): return {value}").status == status


# --- Checkers of problems ------------------------------------------------------------------------------------------

FACTORS = """
def check(input, output, expected):
    factors = [int(word) for word in output.split()]
    product = 1
    for factor in factors:
        product *= factor
    return len(factors) == int(expected) and min(factors) > 1 and product == int(input)
"""


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("print(3, 5)", "accepted", ""),
        ("print(5, 3)", "accepted", ""),
        ("print(1, 15)", "wrong_answer", "the checker does not accept the result"),
        ("print('x')", "wrong_answer", "the checker fails on the result: ValueError (line 3)"),
        ("print('9' * 5000)", "wrong_answer", "the checker fails on the result: ValueError (line 3)"),
        ("", "wrong_answer", None),
        ("1 / 0", "runtime_error", "ZeroDivisionError (line 1)"),
        ("(", "compile_error", None),
    ],
)
def test_a_checker_of_the_problem_decides_what_is_right(
    judged, stdin_problem, source: str, status: str, message: str | None
):
    verdict = judged(stdin_problem(("15\n", "2\n"), checker=CustomChecker("custom", FACTORS)), source)
    assert (verdict.status, verdict.fault) == (status, None)
    assert message is None or verdict.message == message


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("[1, 3]", "accepted"),
        ("(3, 1)", "accepted"),
        ("[2, 3]", "wrong_answer"),
        ("None", "wrong_answer"),
        ("object()", "wrong_answer"),
        ("type('A', (list,), {'__eq__': lambda *a: True, '__len__': lambda a: 2})([1, 3, 9])", "wrong_answer"),
    ],
)
def test_a_checker_of_the_problem_sees_arguments_result_and_expected_value(
    judged, call_problem, value: str, status: str
):
    source = "def check(arguments, result, expected):\n    assert arguments == [[5, 7, 9, 3], 10]\n    return sorted(result) == expected"
    problem = call_problem("f", ([[5, 7, 9, 3], 10], [1, 3]), checker=CustomChecker("custom", source))
    assert judged(problem, f"def f(numbers, total): return {value}").status == status


@pytest.mark.parametrize(
    ("checker", "reason"),
    [
        ("def check(", "does not compile: SyntaxError: '(' was never closed (line 1)"),
        ("", "fails before it has seen a result: KeyError"),
        ("def test(a, b, c): return True", "fails before it has seen a result: KeyError"),
        ("x = 1\n1 / 0", "fails before it has seen a result: ZeroDivisionError (line 2)"),
        ("import os\nos._exit(0)", "fails before it has seen a result: it ended early"),
        ("while True: pass", "fails before it has seen a result: CPU time limit"),
    ],
)
def test_a_checker_that_cannot_be_used_gives_no_verdict_and_names_the_problem(
    judged, stdin_problem, checker: str, reason: str
):
    problem = stdin_problem(("", "7"), checker=CustomChecker("custom", checker), time_limit_s=0.5)
    verdict = judged(problem, "print(7)")
    assert (verdict.status, verdict.reward, verdict.fault.kind) == (None, None, "problem")
    assert verdict.fault.detail == f"problem 'p': checker.source {reason}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "the checker returns neither True nor False"),
        ("return 1", "the checker returns neither True nor False"),
        ("return 'yes'", "the checker returns neither True nor False"),
        ("raise SystemExit(0)", "the checker fails on the result: SystemExit (line 2)"),
        ("import os; os._exit(0)", "the checker fails on the result: it ended early"),
        ("return [0] * 10**10", "the checker fails on the result: memory limit"),
        ("while True: pass", "the checker fails on the result: CPU time limit"),
        ("while True: print('x' * 10_000)", "the checker fails on the result: output limit"),
    ],
)
def test_a_checker_that_fails_on_a_result_has_not_accepted_it(judged, stdin_problem, body: str, message: str):
    checker = CustomChecker("custom", f"def check(input, output, expected):\n    {body}")
    verdict = judged(stdin_problem(("", "7"), checker=checker, time_limit_s=0.5), "print(7)")
    assert (verdict.status, verdict.message, verdict.fault) == ("wrong_answer", message, None)


def test_a_checker_that_waits_until_its_wall_time_is_over_is_never_a_pass(judged, stdin_problem, monkeypatch):
    monkeypatch.setattr("autoclave.judge.special._WALL_FACTOR", 1)
    checker = CustomChecker("custom", "import time\ndef check(*of):\n    time.sleep(99)\n    return True")
    verdict = judged(stdin_problem(("", "7"), checker=checker, time_limit_s=0.5), "print(7)")
    assert (verdict.status, verdict.reward) == ("runtime_error", 0.0)


def test_what_was_printed_reaches_the_checker_as_it_was_printed(judged, stdin_problem):
    checker = CustomChecker(
        "custom",
        "def check(input, output, expected): return (input, output, expected) == ('ä\\n', ' \\ufffd\\0é\\r\\n', '')",
    )
    source = "import os\nos.write(1, b' \\xff\\0\\xc3\\xa9\\r\\n')"
    assert judged(stdin_problem(("ä\n", ""), checker=checker), source).status == "accepted"


def test_the_program_cannot_reach_its_checker(judged, stdin_problem):
    checker = CustomChecker("custom", "def check(input, output, expected): return output == expected  # SECRET_MARK")
    source = (
        "import gc, glob\nmark = 'KRAM_TERCES'[::-1]\n"
        "found = [v for o in gc.get_objects() if type(o) is dict for v in list(o.values()) if type(v) is str and mark in v and v != mark]\n"
        "for f in glob.glob('/**/*', recursive=True):\n    try:\n        if mark in open(f, errors='replace').read(10**6): found.append(f)\n"
        "    except (OSError, ValueError): pass\nprint('found' if found else 'nothing', end='')"
    )
    assert judged(stdin_problem(("", "nothing"), checker=checker, time_limit_s=10.0), source).status == "accepted"


def test_each_result_is_checked_in_a_process_of_its_own(judged, stdin_problem):
    checker = CustomChecker(
        "custom", "seen = []\ndef check(input, output, expected):\n    seen.append(output)\n    return len(seen) == 1"
    )
    assert (
        judged(stdin_problem(("1", ""), ("2", ""), ("3", ""), checker=checker), "print(input())").status == "accepted"
    )


def test_a_large_output_reaches_the_checker_whole(judged, stdin_problem):
    checker = CustomChecker("custom", "def check(input, output, expected): return output == 'x' * 1_500_000")
    problem = stdin_problem(("", ""), checker=checker, memory_limit_mb=64)
    assert judged(problem, "print('x' * 1_500_000, end='')").status == "accepted"


HOSTILE_ANSWERS = {
    "frame of its own": "import os\ndef f():\n    os.write(3, b'\\0\\0\\0\\x04true')\n    os._exit(0)",
    "two frames": "import os\ndef f():\n    os.write(3, b'\\0\\0\\0\\x0b[\"value\",1]' + b'\\0\\0\\0\\x04true')\n    os._exit(0)",
    "not what a call server sends": "import os\ndef f():\n    os.write(3, b'\\0\\0\\0\\x0b[\"value\",  ')\n    os._exit(0)",
    "unknown tag": 'import os\ndef f():\n    m = b\'["value",{"$":"code","v":1}]\'\n    os.write(3, len(m).to_bytes(4, \'big\') + m)\n    os._exit(0)',
    "deep": "import os\ndef f():\n    m = b'[\"value\",' + b'[' * 10**5\n    os.write(3, len(m).to_bytes(4, 'big') + m)\n    os._exit(0)",
    "empty": "import os\ndef f():\n    os.write(3, bytes(4))\n    os._exit(0)",
    "nothing": "import os\ndef f(): os._exit(0)",
}


@pytest.mark.parametrize("trick", HOSTILE_ANSWERS)
def test_hostile_answers_are_read_in_the_cell_of_the_checker_only(judged, call_problem, trick: str):
    checker = CustomChecker("custom", "def check(arguments, result, expected): return result == expected")
    verdict = judged(call_problem("f", ([], 7), checker=checker), HOSTILE_ANSWERS[trick])
    assert (verdict.reward, verdict.fault) == (0.0, None)
