"""Call tests: entry points, arguments, results, and results that lie."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import pytest

TWO_SUM = "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        return {}\n"


def test_a_method_of_a_solution_is_called_on_a_fresh_instance(judged, call_problem):
    problem = call_problem("Solution.count", ([], 1), ([], 1))
    source = "class Solution:\n    def __init__(self): self.n = 0\n    def count(self):\n        self.n += 1\n        return self.n"
    assert judged(problem, source).status == "accepted"


@pytest.mark.parametrize(
    "source",
    [
        "def f(a, b): return a + b",
        "f = lambda a, b: a + b",
        "class Solution:\n    def f(self, a, b): return a + b",
        "class Solution: pass\ndef f(a, b): return a + b",
        "from operator import add as f",
    ],
)
def test_a_plain_name_is_a_function_or_else_a_method_of_solution(judged, call_problem, source: str):
    assert judged(call_problem("f", ([1, 2], 3)), source).status == "accepted"


@pytest.mark.parametrize("value", ["[0, 1]", "(0, 1)", "[False, True]", "[0.0, 1]", "sorted({1, 0})"])
def test_results_are_compared_as_python_values(judged, call_problem, value: str):
    problem = call_problem("Solution.twoSum", ([[2, 7, 11], 9], [0, 1]))
    assert judged(problem, TWO_SUM.format(value)).status == "accepted"


@pytest.mark.parametrize("value", ["[1, 0]", "None", "'[0, 1]'", "{0: 1}", "[[0, 1]]", "iter([0, 1])", "range(2)"])
def test_other_results_are_wrong_answers(judged, call_problem, value: str):
    problem = call_problem("Solution.twoSum", ([[2, 7, 11], 9], [0, 1]))
    assert judged(problem, TWO_SUM.format(value)).status == "wrong_answer"


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("def f(x): return 1 / 0", "runtime_error", "ZeroDivisionError (line 1)"),
        ("def g(x): return x", "runtime_error", "NameError"),
        ("raise ValueError", "runtime_error", "ValueError (line 1)"),
        ("def f(x): exit()", "runtime_error", "SystemExit (line 1)"),
        ("import os\ndef f(x): os._exit(0)", "runtime_error", "it ended before the call returned"),
        ("def f(x): return [0] * 10**10", "memory_limit", "memory limit"),
        ("def f(x):\n    while True: print('x' * 10_000)", "output_limit", "output limit"),
        ("def f(x): return 'x' * 10**7", "output_limit", "output limit"),
        ("def f(x): return f(x) + 1", "runtime_error", "RecursionError (line 1)"),
        ("def f(x", "compile_error", "SyntaxError: '(' was never closed (line 1)"),
        (
            "def f(x): return object()",
            "wrong_answer",
            "the result is not plain data (numbers, text, bytes, containers)",
        ),
        ("def f(x):\n    a = []\n    a.append(a)\n    return a", "wrong_answer", None),
    ],
)
def test_a_call_that_fails_is_told_how(judged, call_problem, source: str, status: str, message: str | None):
    verdict = judged(call_problem("f", ([1], 1)), source)
    assert verdict.status == status
    assert message is None or verdict.message == message


LIARS = {
    "list": "class A(list):\n    def __eq__(self, other): return True\ndef f(x): return A([99])",
    "int": "class A(int):\n    def __eq__(self, other): return True\ndef f(x): return A(99)",
    "str": "class A(str):\n    def __eq__(self, other): return True\ndef f(x): return A('no')",
    "object": "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "class of another": "class A:\n    __class__ = list\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "inside a list": "class A:\n    def __eq__(self, other): return True\ndef f(x): return [A()]",
    "patched json": "import json\njson.dumps = lambda *a, **k: '[\"value\", [1, 2]'\ndef f(x): return 0",
    "patched builtins": "import builtins\nbuiltins.isinstance = lambda *a: True\ndef f(x): return 0",
    "frame of its own": "import os\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\x0e[\"accepted\", 1]')\n    os._exit(0)",
    "truncated frame": "import os\ndef f(x):\n    os.write(3, b'\\xff\\xff\\xff\\xff[')\n    os._exit(0)",
    "empty frame": "import os\ndef f(x):\n    os.write(3, bytes(4))\n    os._exit(0)",
    "deep frame": "import os\ndef f(x):\n    os.write(3, (10**5).to_bytes(4, 'big') + b'[' * 10**5)\n    os._exit(0)",
    "pickle": "import os, pickle\ndef f(x):\n    p = pickle.dumps(['value', [1, 2]])\n    os.write(3, len(p).to_bytes(4, 'big') + p)\n    os._exit(0)",
    "frames of the caller": (
        "import sys, gc\ndef f(x):\n    frame, seen = sys._getframe(), []\n    while frame:\n        seen += frame.f_locals.values()\n"
        "        frame = frame.f_back\n    return next((v for v in seen + gc.get_objects() if v == [7, 'expected']), 0)"
    ),
}


@pytest.mark.parametrize("trick", LIARS)
def test_a_lying_result_is_not_accepted(judged, call_problem, trick: str):
    verdict = judged(call_problem("f", ([1], [7, "expected"])), LIARS[trick])
    assert (verdict.reward, verdict.fault) == (0.0, None)


def test_arguments_and_results_keep_their_types(judged, call_problem):
    arguments = [1, 1.5, "ä\ud800", None, True, [[]], {"$": 1, "a": {}}, 10**400]
    problem = call_problem("f", (arguments, arguments))
    source = "def f(*a):\n    assert [type(x).__name__ for x in a] == 'int float str NoneType bool list dict int'.split()\n    return list(a)"
    assert judged(problem, source).status == "accepted"


def test_the_preamble_of_the_tests_runs_before_the_program(judged, call_problem):
    preamble = "class ListNode:\n    def __init__(self, val): self.val = val\n"
    problem = call_problem("f", ([3], 3), preamble=preamble)
    assert judged(problem, "class Node(ListNode): pass\ndef f(x): return Node(x).val").status == "accepted"


def test_a_main_guard_does_not_run_and_prints_do_not_matter(judged, call_problem):
    source = "print('loaded')\ndef f(x):\n    print(x)\n    return x\nif __name__ == '__main__': 1 / 0"
    assert judged(call_problem("f", ([1], 1)), source).status == "accepted"


def test_a_large_argument_and_result_travel_whole(judged, call_problem):
    numbers = list(range(100_000))
    assert judged(call_problem("f", ([numbers], numbers)), "def f(x): return x").status == "accepted"


def test_every_call_is_a_process_of_its_own(judged, call_problem):
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    assert judged(call_problem("f", ([1], 1), ([2], 1), ([3], 1)), source).status == "accepted"


def test_an_answer_far_longer_than_what_is_expected_is_refused_unread(judged, call_problem):
    verdict = judged(call_problem("f", ([], [1])), "def f(): return [[] for _ in range(200_000)]")
    assert (verdict.status, verdict.message) == ("wrong_answer", "the result does not match")
