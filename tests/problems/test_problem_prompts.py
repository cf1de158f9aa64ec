"""Prompts: the bare statement for the tiny policy, full instructions for general models."""

from __future__ import annotations

from autoclave.core import CallCase, CallTests, Problem, StdinCase, StdinTests
from autoclave.problems import problem_messages

CALLED = Problem(
    statement="f(x) on a list: sort ascending; return the list.",
    tests=CallTests("call", "f", [CallCase([[2, 1]], [1, 2])]),
    starter_code="def f(x):",
)
READ = Problem(
    statement="read a line s: reverse it; print the result.", tests=StdinTests("stdin", [StdinCase("ab", "ba")])
)


def test_plain_is_the_statement_alone():
    assert problem_messages(CALLED, "plain") == ({"role": "user", "content": CALLED.statement},)


def test_code_tells_the_function_to_define_and_how_it_begins():
    system, user = problem_messages(CALLED, "code")
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"].startswith(CALLED.statement)
    assert "defines `f`" in user["content"]
    assert "```python\ndef f(x):\n```" in user["content"]


def test_code_tells_a_script_to_read_standard_input():
    _system, user = problem_messages(READ, "code")
    assert "standard input" in user["content"]
    assert "Begin with" not in user["content"]


def test_no_prompt_shows_a_test():
    for problem in (CALLED, READ):
        assert all("[2, 1]" not in m["content"] and "ba" not in m["content"] for m in problem_messages(problem, "code"))
