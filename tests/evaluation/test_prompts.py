"""Prompts of benchmarks."""

from __future__ import annotations

import pytest

from autoclave.core import CheckTests, ConfigError, Problem
from autoclave.evaluation.questions import PROMPTS, prompt_of

PROBLEM = Problem(
    "Add {a} and {tests}.",
    CheckTests("check", "add", "assert add(1, 2) == 3", ""),
    id="p",
    starter_code="def add(a, b):",
)


@pytest.mark.parametrize("name", PROMPTS)
def test_every_prompt_has_the_statement_as_it_is(name):
    messages = prompt_of(name, None)(PROBLEM)
    assert PROBLEM.statement in messages[-1]["content"]
    assert messages[-1]["role"] == "user"


def test_tests_are_shown_where_the_statement_does_not_name_the_function():
    assert "assert add(1, 2) == 3" in prompt_of("code_with_tests", None)(PROBLEM)[-1]["content"]


def test_the_system_message_can_be_replaced_and_left_out():
    assert prompt_of("code", "Be brief.")(PROBLEM)[0] == {"role": "system", "content": "Be brief."}
    assert [message["role"] for message in prompt_of("code", "")(PROBLEM)] == ["user"]
    assert [message["role"] for message in prompt_of("value", "Be brief.")(PROBLEM)] == ["system", "user"]


def test_placeholders_are_filled_once_and_other_braces_stay():
    (message,) = prompt_of("{statement}|{starter_code}|{entry_point}|{tests}|{other}", None)(PROBLEM)
    assert message["content"] == "Add {a} and {tests}.|def add(a, b):|add|assert add(1, 2) == 3|{other}"


def test_an_unknown_prompt_is_named():
    with pytest.raises(ConfigError, match="did you mean code"):
        prompt_of("coed", None)
