"""Plain words in any mark-up, and topic words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.problems.curation.statements import names_in, plain_text, plain_words, topic_words

PLAIN = "Find a_i + 1 where 1 <= n <= 10^5."


@pytest.mark.parametrize(
    "written",
    [
        "Find $a_i + 1$ where $1 \\le n \\leq 10^5$.",
        "Find $a_{i}+1$ where $1 \\leqslant n \\le 10^{5}$.",
        "find a<sub>i</sub> + 1 where 1 &lt;= n &lt;= 10<sup>5</sup>.",
        "<p>Find <var>a_i</var> + 1 where 1 ≤ n ≤ 10⁵.</p>",
        "**Find** `a_i + 1`\r\n\r\nwhere *1 ≤ n* ≤ 10**5.",
        "ＦＩＮＤ  aᵢ + 1 where 1 ⩽ n ≤ 10^5",
        "Find \\(a_i + 1\\) where \\(1 \\le \\text{n} \\le 10^5\\)",
        "Find a_i + 1 ![picture](https://site/a.png) where &#49; &le; n &amp;lt;= 10^5",
    ],
)
def test_mark_up_of_any_site_does_not_change_the_words(written: str):
    assert plain_words(plain_text(written)) == plain_words(plain_text(PLAIN))


@pytest.mark.parametrize(
    ("left", "right"),
    [("a + b", "a * b"), ("a - b", "a + b"), ("x < y", "x > y"), ("x <= y", "x < y"), ("-5", "5"), ("1000", "100")],
)
def test_operators_and_numbers_distinguish_statements(left: str, right: str):
    assert plain_words(plain_text(f"Print {left}.")) != plain_words(plain_text(f"Print {right}."))


def test_dashes_and_rules_are_not_minus_signs():
    assert plain_words(plain_text("-----Input-----\nn - the number of non-negative words")) == (
        ["input", "n", "the", "number", "of", "non", "negative", "words"]
    )


def test_digits_in_groups_are_one_number():
    assert plain_words(plain_text("up to 1,000,000 or $10\\,000$, as 1, 2, 300")) == (
        ["up", "to", "1000000", "or", "10000", "as", "1", "2", "300"]
    )


def test_topic_words_leave_out_samples_limits_prompts_and_names():
    statement = """You are an expert Python programmer. Write correct code.
One day Petya met Vasya at a volcano.
Time limit: 2000 ms
Input
3 hidden rows
Output
7
Note
The eruption of lava is measured in barrels and we should tell how many barrels.
```python
class Solution: pass
```"""
    found = topic_words(plain_text(statement), names_in(statement))
    assert found == ["day", "met", "volcano", "eruption", "lava", "measur", "barrel", "tell", "man", "barrel"]


def test_words_for_the_same_thing_are_one():
    assert topic_words("the smallest list of unique items") == topic_words("a minimum array with distinct elements")


def test_a_statement_of_common_words_alone_still_has_a_topic():
    assert topic_words("print the output") != []
    assert topic_words("") == []


def test_chinese_has_words():
    assert topic_words(plain_text("给定一个整数数组")) == list("给定一个整数数组")


@given(st.text())
def test_any_text_is_read_and_its_words_are_stable(text: str):
    once = plain_words(plain_text(text))
    assert plain_words(plain_text(" ".join(once))) == once or any(word in "-" for word in once)


@pytest.mark.parametrize(
    "piece", ["[", "![", "<!--", "*a ", " _a", "<b ", "$", "{", "\\frac{", "assert ", "`", "-", "1,", "Ab "]
)
@pytest.mark.timeout(60)
def test_a_hostile_text_takes_no_longer(piece: str):
    text = piece * (100_000 // len(piece))
    for hostile in (text, f"input {text}", f"example {text}"):
        plain = plain_text(hostile)
        assert len(topic_words(plain, names_in(hostile))) <= len(hostile)
        assert len(plain_words(plain)) <= len(hostile)
