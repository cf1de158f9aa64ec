r"""Where the final answer stands in a response."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.final_answer import ANSWER_RULES

final, boxed, answer_line, whole = (ANSWER_RULES[name] for name in ("final", "boxed", "answer_line", "whole"))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{7}.", "7"),
        (r"\boxed{6} no, \boxed{7}", "7"),
        (r"first \boxed{7}, and then much more text", "7"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{\boxed{7}}", r"\boxed{7}"),
        (r"\boxed{7} and then \boxed{8", "7"),  # a response that was cut off
        (r"{ an open brace \boxed{7}", "7"),
        (r"} a closed one \boxed{7}", "7"),
        (r"\\boxed{7}", None),  # a line break and a word
        (r"\boxed{ }", None),
        (r"\boxed{", None),
        (r"\boxed 7", None),
        ("7", None),
        ("", None),
    ],
)
def test_boxed_takes_what_the_last_whole_box_holds(response: str, answer: str | None):
    assert boxed(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Answer: 7", "7"),
        ("It is so.\nThe final answer is: 7.\n", "7"),
        ("**Answer:** $\\frac12$", "\\frac12"),
        ("answer: 6\nAnswer: 7\nand so on", "7"),
        ("### Final Answer: x = 7", "x = 7"),
        ("- Answer: 0.5 ", "0.5"),
        ("My answer: 7", None),  # in the middle of a line
        ("Answer 7", None),
        ("Answer:", None),
        ("", None),
    ],
)
def test_answer_line_takes_the_rest_of_the_last_line_that_says_so(response: str, answer: str | None):
    assert answer_line(response) == answer


def test_final_prefers_the_box_and_else_takes_the_line():
    assert final("\\boxed{7}\nAnswer: 8") == "7"
    assert final("Answer: 8") == "8"
    assert final("It is 8.") is None


def test_whole_takes_everything_but_blanks():
    assert (whole(" 7 \n"), whole(" \n")) == ("7", None)


@given(st.text("ab1{}\\ ", max_size=20), st.text(max_size=40), st.text("xyz \n", max_size=40))
def test_a_boxed_answer_with_balanced_braces_is_found_as_it_was_written(inside: str, before: str, after: str):
    answer = inside.replace("\\", "").replace("{", "{ ").replace("}", "")
    answer = (answer + "}" * answer.count("{")).strip() or "1"
    before = before.replace("\\", "")
    assert boxed(f"{before}\\boxed{{{answer}}}{after}") == answer


@pytest.mark.parametrize(
    "response",
    ["\\boxed{" * 150_000, "{" * 1_000_000, "}" * 1_000_000, "\\" * 1_000_000, "Answer: \n" * 110_000, "*" * 1_000_000],
)
@pytest.mark.parametrize("rule", sorted(set(ANSWER_RULES) - {"whole"}))
def test_a_megabyte_without_an_answer_is_read_in_linear_time(rule: str, response: str):
    assert ANSWER_RULES[rule](response) is None  # in quadratic time this ends with the time limit of the test


@given(st.text(), st.sampled_from(sorted(ANSWER_RULES)))
def test_every_rule_finds_text_that_is_in_the_response_or_nothing(response: str, rule: str):
    answer = ANSWER_RULES[rule](response)
    assert answer is None or (answer and answer == answer.strip() and answer in response)
