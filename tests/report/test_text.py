from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoclave.report.text import count, shortened


def test_a_long_text_loses_its_middle_and_says_how_much():
    assert shortened("a" * 30 + "b" * 1001 + "c" * 30, 60) == f"{'a' * 30}\n[1,001 characters left out]\n{'c' * 30}"


def test_of_an_odd_limit_the_beginning_gets_one_more():
    assert shortened("abcdefg", 3) == "ab\n[4 characters left out]\ng"


@given(st.text(max_size=50), st.integers(1, 60))
def test_what_fits_stays_as_it_is(text: str, limit: int):
    assert (shortened(text, limit) == text) == (len(text) <= limit)


def test_one_is_singular():
    assert (count(1, "problem"), count(2000, "problem")) == ("1 problem", "2,000 problems")
