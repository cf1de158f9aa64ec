"""Extraction of programs and answers from responses."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import AnswerTests, Problem
from autoclave.evaluation.submissions import call_arguments, rule_of, value, without_thinking

CODE = Problem("def f(a):\n", AnswerTests("answer", "1", "value"), starter_code="class Solution:\n    def f(self):")


def found(rule: str, response: str, stops: tuple[str, ...] = ()) -> str | None:
    return rule_of(rule, stops)(CODE, response)


@pytest.mark.parametrize(
    ("response", "rest"),
    [
        ("<think>a\n```python\n1\n```</think>answer", "answer"),
        ("no tag", "no tag"),
        ("reasoning without a beginning</think>\nx", "\nx"),
        ("<think>it never ends ```python\n1\n```", ""),
        ("a</think>b</think>c", "c"),
        ("done</think> <think>again", ""),
    ],
)
def test_reasoning_is_not_graded(response, rest):
    assert without_thinking(response, "</think>") == rest


def test_a_response_without_the_end_of_opened_reasoning_is_all_reasoning():
    assert without_thinking("a draft ```python\n1\n```", "</think>", is_opened=True) == ""
    assert without_thinking("a draft</think>answer", "</think>", is_opened=True) == "answer"


def test_a_response_without_reasoning_is_graded_whole():
    assert without_thinking("<think>x", "") == "<think>x"


def test_a_completion_continues_the_prompt_up_to_the_first_stop():
    assert found("completion", "    return 1\ndef g():", ("\nclass", "\ndef")) == "def f(a):\n    return 1"
    assert found("completion", "    return 1\n") == "def f(a):\n    return 1\n"


def test_a_continuation_is_put_behind_the_beginning_unless_it_repeats_it():
    begin = CODE.starter_code
    assert found("continuation", "```python\n        return 1\n```") == f"{begin}\n        return 1"
    assert found("continuation", f"```python\n{begin}\n        return 1\n```") == f"{begin}\n        return 1"
    assert found("continuation", "        return 1") is None


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("So it is\nAnswer: [1, 2]", "[1, 2]"),
        ("[ANSWER] 'a' [/ANSWER]", "'a'"),
        ("[ANSWER]1[/ANSWER] no: [ANSWER]2[/ANSWER]", "2"),
        ("[ANSWER] cut off", "cut off"),
        ("assert f(1) == {'a': 1}", "{'a': 1}"),
        ("Answer: f(x = 1) == 5", "5"),
        ("thinking\n\n`'x'`", "'x'"),
        ("```\n3\n```", "3"),
        ("", None),
    ],
)
def test_a_predicted_value_is_found(response, expected):
    assert value(response) == expected


@pytest.mark.parametrize(
    ("response", "call"),
    [
        ("Answer: f([1, 2], 'a')", "f([1, 2], 'a')"),
        ("[ANSWER] f(-1, x={'a': {1}}) [/ANSWER]", "f(-1, x={'a': {1}})"),
        ("assert f('a' * 3) == 'aaa'", "f('a' * 3)"),
        ("Answer: [1], 2", "f([1], 2)"),
        ("Answer: f(set([1]), dict(a=float('inf')))", "f(set([1]), dict(a=float('inf')))"),
    ],
)
def test_a_call_with_values_is_a_program(response, call):
    assert call_arguments(CODE, response) == f"def predicted():\n    return {call}\n"


@pytest.mark.parametrize(
    "response",
    [
        "Answer: f(lambda x: x)",
        "Answer: f(x := 1)",
        "Answer: f(type('A', (), {'__eq__': lambda *_: True})())",
        "Answer: f(__import__('os').system('true'))",
        "Answer: f(1) or 5",
        "Answer: g(1)",
        "Answer: f(f)",
        "Answer: f([x for x in (1,)])",
        "Answer: f(().__class__)",
        "Answer: 1) or (5",
        "Answer: f(" + "(" * 5000 + ")" * 5000 + ")",
        "Answer: f('" + "a" * 30_000 + "')",
        "",
    ],
)
def test_arguments_other_than_values_are_not_an_answer(response):
    assert call_arguments(CODE, response) is None


@given(st.text())
def test_extracted_programs_are_one_call_of_f(response):
    source = call_arguments(CODE, response)
    if source is not None:
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        (returned,) = function.body
        assert isinstance(returned, ast.Return)
        assert isinstance(returned.value, ast.Call)
        assert ast.unparse(returned.value.func) == "f"


@given(st.text())
def test_the_search_for_a_value_handles_any_response(response):
    assert value(response) != ""
