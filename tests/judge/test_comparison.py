"""Rules for printed output; expected results follow the published rules of each grader."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.comparison import CHECKERS

lcb, exact, tokens = CHECKERS["lcb"], CHECKERS["exact"], CHECKERS["tokens"]
lines = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=8)
texts = st.lists(lines, max_size=5).map("\n".join)
numbers = st.decimals(-(10**9), 10**9, places=3)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("7\n", "7"),
        ("  7 \r\n", "7\n\n"),
        ("a  \n  b", "a\nb"),
        ("1.0", "1"),
        ("1e0 2.50", "1 2.5"),
        ("1_000", "1000"),
        ("١", "1"),
        ("1\t 2", "1 2"),
        ("inf", "Infinity"),
        ("", "\n"),
        ("\u30001\u2009", "1"),
    ],
)
def test_lcb_accepts(printed: str, expected: str):
    assert lcb(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("8", "7"),
        ("1.0000000001", "1"),
        ("yes", "YES"),
        ("a b", "a  b"),
        ("1\n\n2", "1\n2"),
        ("1 2", "1\n2"),
        ("1\n2", "1"),
        ("nan", "NaN"),
        ("snan", "1"),
        ("0x10", "16"),
        ("1 x", "1.0 x"),
        ("1 2 3", "1 2"),
        ("", "0"),
        ("\u2028".join("12"), "1\n2"),
    ],
)
def test_lcb_rejects(printed: str, expected: str):
    assert not lcb(printed, expected)


def test_lcb_text_that_is_equal_needs_no_numbers():
    assert lcb("nan x\nÄ", "nan x\nÄ")


def test_exact_wants_every_byte_and_tokens_ignores_blanks():
    assert exact("a b\n", "a b\n")
    assert not exact("a b", "a b\n")
    assert tokens(" a\n\tb ", "a b")
    assert not tokens("ab", "a b")


@given(texts)
def test_every_rule_accepts_the_expected_text_itself(text: str):
    assert all(matches(text, text) for matches in CHECKERS.values())


@given(texts, texts)
def test_no_rule_is_laxer_about_words_than_tokens_unless_they_are_numbers(printed: str, expected: str):
    if exact(printed, expected):
        assert lcb(printed, expected)
        assert tokens(printed, expected)
    if lcb(printed, expected) and not any(char.isdigit() for char in printed):
        assert tokens(printed.lower(), expected.lower()) or "inf" in printed.lower()


@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([" ", "  ", "\t"]))
def test_lcb_compares_numbers_by_value(values: list[Decimal], blank: str):
    assert lcb(blank.join(f"{value:f}" for value in values), " ".join(f"{value:e}" for value in values))


@given(texts, texts)
def test_lcb_is_symmetric(left: str, right: str):
    assert lcb(left, right) == lcb(right, left)


def test_a_flood_of_numbers_is_rejected_quickly_when_the_count_differs():
    assert not lcb("1.0 " * 3_000_000, "1")
