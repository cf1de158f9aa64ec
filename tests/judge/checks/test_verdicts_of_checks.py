"""What verdict follows from which end of a check."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import pytest

from autoclave.core import InputError

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"
UNIT_TEST = "import unittest\nclass T(unittest.TestCase):\n    def test_two(self): self.assertEqual(f(2), 4)\n    def test_error(self):\n        with self.assertRaises(TypeError): f(None)\n"


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("def f(x): return x * x", "accepted", ""),
        ("def f(x): return x + x", "wrong_answer", "the check failed"),
        ("def f(x):\n    return None if x == 3 else x * x", "wrong_answer", "the check failed"),
        ("def f(x):\n    return 1 / 0", "runtime_error", "ZeroDivisionError (line 2)"),
        ("def f(x):\n    assert x == 2\n    return 4", "runtime_error", "AssertionError (line 2)"),
        ("class Odd(ValueError): pass\ndef f(x): raise Odd", "runtime_error", "an exception (line 2)"),
        ("def g(x): return x", "runtime_error", "NameError"),
        ("1 / 0", "runtime_error", "ZeroDivisionError (line 1)"),
        ("def f(x", "compile_error", "SyntaxError: '(' was never closed (line 1)"),
        ("def f(x): return f(x) + 1", "runtime_error", "RecursionError (line 1)"),
        ("def f(x):\n    while True: pass", "time_limit", None),
        ("def f(x): return bytearray(1 << 30)", "memory_limit", "memory limit"),
        ("def f(x):\n    while True: print('x' * 10_000)", "output_limit", "output limit"),
        ("def f(x): return 'x' * 10**7", "output_limit", "output limit"),
        ("def f(x): exit()", "runtime_error", "SystemExit (line 1)"),
        ("def f(x): raise KeyboardInterrupt", "runtime_error", "KeyboardInterrupt (line 1)"),
        ("import os\ndef f(x): os._exit(0)", "runtime_error", "it ended before the check did"),
        ("import ctypes\ndef f(x): ctypes.string_at(1)", "runtime_error", "killed by SIGSEGV"),
        ("def f(x):\n    a = []\n    for _ in range(10**4): a = [a]\n    return a", "runtime_error", "TypeError"),
    ],
)
def test_the_verdict_reports_how_the_program_ended(
    judged, check_problem, program: str, status: str, message: str | None
):
    problem = check_problem(CHECK, invocation="check(candidate)", time_limit_s=0.5)
    verdict = judged(problem, program)
    assert (verdict.status, verdict.fault) == (status, None)
    assert message is None or verdict.message == message


@pytest.mark.parametrize(
    ("source", "program", "status"),
    [
        ("try: candidate(0)\nexcept ZeroDivisionError as error: assert str(error) == 'division by zero'", "def f(x): return 1 / x", "accepted"),
        ("try: candidate(0)\nexcept ValueError as error: assert error.args == ('a', 1)", "class Odd(ValueError): pass\ndef f(x): raise Odd('a', 1)", "accepted"),
        ("try: candidate(0)\nexcept Known as error: assert error.args == ('a',)", "def f(x): raise Known('a')", "accepted"),
        ("try: candidate(0)\nexcept Exception: pass", "def f(x): raise SystemExit", "runtime_error"),
        ("try: candidate(0)\nexcept BaseException: pass", "import os\ndef f(x): os._exit(0)", "runtime_error"),
        ("def g(): raise KeyError('k')\nassert candidate(g) == ('k',)", "def f(g):\n    try: g()\n    except KeyError as error: return error.args", "accepted"),
        ("def g(x): assert x == 1\ncandidate(g)", "def f(g):\n    try: g(2)\n    except AssertionError: pass", "wrong_answer"),
        ("def g(): return open('/x')\nassert candidate(g) == 2", "def f(g):\n    try: g()\n    except FileNotFoundError as error: return error.errno", "accepted"),
        ("import sys\nassert candidate(1) == 1\nsys.exit()", "def f(x): return x", "accepted"),
        ("import sys\ncandidate(1)\nsys.exit(1)", "def f(x): return x", "wrong_answer"),
        ("assert abs(candidate(1) - 1) < 1e-6", "def f(x): return None", "wrong_answer"),
    ],
)  # fmt: skip
def test_exceptions_are_marshalled_by_name(checked, source: str, program: str, status: str):
    verdict = checked(source, program, preamble="class Known(Exception): pass")
    assert (verdict.status, verdict.fault) == (status, None)


@pytest.mark.parametrize(
    ("entry_point", "invocation", "program"),
    [
        ("Solution.f", "check(candidate)", "class Solution:\n    def f(self, x): return x * x"),
        ("f", "check(candidate)", "class Solution:\n    def f(self, x): return x * x"),
        ("Solution.f", "check(Solution().f)", "class Solution:\n    def f(self, x): return x * x"),
        ("Solution", "check(Solution().f)", "class Solution:\n    def f(self, x): return x * x"),
        ("f", "check(f)", "def f(x): return x * x\nif __name__ == '__main__': 1 / 0"),
    ],
)
def test_entry_points(checked, entry_point: str, invocation: str, program: str):
    assert checked(CHECK, program, entry_point, invocation).status == "accepted"


def test_a_method_is_that_of_one_instance(checked):
    program = "class Solution:\n    n = 0\n    def f(self):\n        self.n += 1\n        return self.n"
    assert checked("assert [candidate(), candidate()] == [1, 2]", program, "Solution.f").status == "accepted"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("def f(x): return x * x", "accepted"),
        ("def f(x): return x + x if x else 1", "wrong_answer"),
        ("def f(x): return 5", "wrong_answer"),
        ("def f(x): raise TypeError", "wrong_answer"),
    ],
)
def test_unit_tests_are_checks(checked, program: str, status: str):
    assert checked(UNIT_TEST, program, "f", "unittest.main()").status == status


@pytest.mark.parametrize("preamble", ["import nothing_of_the_kind", "while True: pass", "x = bytearray(1 << 30)"])
def test_a_broken_check_is_the_problems_fault(judged, check_problem, preamble: str):
    verdict = judged(check_problem("1 / 0", preamble=preamble, time_limit_s=0.5), "def f(): pass")
    assert (verdict.status, verdict.reward, verdict.fault.kind) == (None, None, "problem")
    assert verdict.fault.detail.startswith("problem 'p': tests: ")


def test_a_check_that_does_not_compile_is_refused_before_anything_runs(judge, check_problem):
    with pytest.raises(InputError, match=r"problem 'p': tests.source, line 1: does not compile \("):
        judge.check(check_problem("def check("))


def test_a_check_that_calls_nothing_accepts_nothing(checked):
    assert checked("pass", "def f(): pass").status == "wrong_answer"
    assert checked("assert N == 3", "N = 3\ndef f(): pass").status == "wrong_answer"


def test_what_a_program_does_after_the_check_does_not_matter(checked):
    program = "import threading, time, os\ndef f(x):\n    threading.Thread(target=lambda: (time.sleep(60), os._exit(3)), daemon=False).start()\n    return x"
    assert checked("assert candidate(1) == 1", program).status == "accepted"


def test_a_check_that_a_result_exhausts_fails_the_program(checked):
    program = "def f(): return 10**8"
    assert checked("for i in range(candidate()**2): pass", program, time_limit_s=0.5).status == "time_limit"
    assert checked("[0] * candidate()**2", program).status == "memory_limit"


@pytest.mark.parametrize("source", [CHECK, UNIT_TEST, "", "'text'"])
def test_a_check_that_only_defines_is_refused_before_anything_runs(judged, check_problem, source: str):
    with pytest.raises(InputError, match=r"problem 'p': tests.invocation = '': .* as in 'check\(f\)'"):
        judged(check_problem(source), "def f(x): return x")


def test_a_checker_beside_a_check_is_refused(judged, check_problem):
    with pytest.raises(InputError, match="problem 'p': checker = 'tokens': a check decides by itself"):
        judged(check_problem("assert f(1) == 1", checker="tokens"), "def f(x): return x")
