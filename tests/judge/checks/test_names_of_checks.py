"""The names that a check uses and does not define are the program's, wherever and however the check uses them."""

from __future__ import annotations

import pytest

from autoclave.core import Status

PROGRAM = "def f(n): return n\ndef helper(n): return n + 1\nvalue = 5\ndef credits(): return 9\nhelp = 3"
USES = {
    "function": "assert helper(1) == 2",
    "class body": "class Case:\n    own = staticmethod(helper)\nassert Case.own(1) == 2",
    "same name in a class": "class Case:\n    helper = staticmethod(helper)\nassert Case.helper(1) == 2",
    "class in a function": "def check():\n    class Case:\n        helper = staticmethod(helper)\n"
    "    assert Case.helper(1) == 2\ncheck()",
    "annotation without a value": "helper: 'Callable'\nassert helper(1) == 2",
    "builtin of an interactive session": "assert credits() == 9 and help == 3",
    "a function called top": "def top():\n    value = 1\n    return value\nassert top() == 1 and value == 5",
    "import in dead code": "if False:\n    from solution import helper\nassert helper(1) == 2",
    "definition in dead code": "if 0:\n    def helper(n): return 7\nassert helper(1) == 2",
    "nested functions": "def check():\n    def inner(): return [helper(n) for n in (1, 2)]\n    return inner()\n"
    "assert check() == [2, 3]",
    "default of a lambda": "assert (lambda n, g=helper: g(n))(1) == 2",
    "global in a function": "def change():\n    global value\n    value = value + 1\nold = value\nchange()\n"
    "assert (old, value) == (5, 6)",
    "match": "match value:\n    case int(): assert helper(value) == 6",
}


@pytest.mark.parametrize("check", USES.values(), ids=USES)
def test_a_check_reaches_what_the_program_defines(checked, check: str):
    verdict = checked(f"{check}\nassert f(1) == 1", PROGRAM)
    if "global" in check:  # what a check binds itself is its own
        assert verdict.status is Status.WRONG_ANSWER
    else:
        assert verdict.is_accepted, verdict


def test_what_a_check_defines_is_not_the_programs(checked):
    check = "def helper(n): return 10\nassert helper(f(1)) == 10\nassert value == 5"
    assert checked(check, PROGRAM).is_accepted
    assert not checked(
        "import math\nassert math.sqrt(f(4)) == 2", "class math: sqrt = abs\ndef f(n): return 2"
    ).is_accepted


def test_builtins_of_a_check_are_pythons(checked):
    program = "def f(n): return n\ndef len(x): return 1\ndef isinstance(*a): return True\nTrue_ = 1"
    assert not checked("assert len(f([1, 2])) == 1", program).is_accepted
    assert not checked("assert isinstance(f(1), str)", program).is_accepted
