"""Rules for printed output; expected results follow the published rules of each grader."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections import Counter
from decimal import Decimal, InvalidOperation
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.judge.comparison import CHECKERS, matches_with_tolerance

lcb, exact, tokens, unordered = (CHECKERS[name] for name in ("lcb", "exact", "tokens", "unordered"))
close = partial(matches_with_tolerance, rtol=1e-6, atol=1e-9)
lines = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=8)
strings = st.lists(lines, max_size=5).map("\n".join)
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


@given(strings)
def test_every_rule_accepts_the_expected_text_itself(text: str):
    assert all(matches(text, text) for matches in CHECKERS.values())


@given(strings, strings)
def test_no_rule_is_laxer_about_words_than_tokens_unless_they_are_numbers(printed: str, expected: str):
    if exact(printed, expected):
        assert lcb(printed, expected)
        assert tokens(printed, expected)
    if lcb(printed, expected) and not any(char.isdigit() for char in printed):
        assert tokens(printed.lower(), expected.lower()) or "inf" in printed.lower()


@given(st.lists(numbers, min_size=1, max_size=5), st.sampled_from([" ", "  ", "\t"]))
def test_lcb_compares_numbers_by_value(values: list[Decimal], blank: str):
    assert lcb(blank.join(f"{value:f}" for value in values), " ".join(f"{value:e}" for value in values))


@given(strings, strings)
def test_lcb_is_symmetric(left: str, right: str):
    assert lcb(left, right) == lcb(right, left)


def test_a_flood_of_numbers_is_rejected_quickly_when_the_count_differs():
    assert not lcb("1.0 " * 3_000_000, "1")


# --- LiveCodeBench's rules, written a second time from their description (arXiv:2403.07974 and its evaluation code) --


def as_livecodebench_compares(printed: str, expected: str) -> bool:
    def decimals(line: str) -> list[Decimal] | None:
        try:
            return [Decimal(token) for token in line.split()]
        except InvalidOperation:
            return None

    left = [line.strip() for line in printed.strip().split("\n")]
    right = [line.strip() for line in expected.strip().split("\n")]
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        if one == other:
            continue
        first, second = decimals(one), decimals(other)
        if first is None or second is None:
            return False
        try:
            if first != second:
                return False
        except InvalidOperation:  # a signalling NaN; the grader counts what it raises as a failure
            return False
    return True


NUMBERS = "1 1.0 1e0 01 +1 -1 -0 0 0.0 1_000 1000 inf Infinity -inf 1e400 1E+2 100 .5 5. 0.5 १ ١"
WORDS = "nan NaN -nan snan nan1 0x1 1,0 e 1__0 _1"
number_words = st.sampled_from(f"{NUMBERS} {WORDS}".split())
blanks = st.sampled_from([" ", "  ", "\t", "\n", "\r\n", "\x0b", "\x1c", "\x85", "\u2028", "\u3000", "\ufeff", ""])
outputs = st.lists(st.tuples(number_words | st.text(max_size=2), blanks), max_size=8).map(
    lambda parts: "".join(word + blank for word, blank in parts)
)


@given(outputs, outputs)
def test_lcb_agrees_with_a_second_reading_of_the_rules(printed: str, expected: str):
    assert lcb(printed, expected) == as_livecodebench_compares(printed, expected)


@given(st.lists(st.tuples(number_words, number_words, blanks), max_size=6))
def test_lcb_agrees_on_lines_that_differ_in_spelling_only(parts: list[tuple[str, str, str]]):
    printed = "".join(first + blank for first, _, blank in parts)
    expected = "".join(second + blank for _, second, blank in parts)
    assert lcb(printed, expected) == as_livecodebench_compares(printed, expected)


@given(outputs, outputs)
def test_tokens_agrees_with_splitting_both(printed: str, expected: str):
    assert tokens(printed, expected) == (printed.split() == expected.split())


def test_every_blank_that_splits_is_a_blank_to_the_rules():
    blanks = [char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace()]
    assert all(tokens(f"1{blank}2", "1 2") and close(f"1{blank}2", "1 2") for blank in blanks)
    assert all(lcb(f"{blank}1{blank}", "1") for blank in blanks)


# --- unordered -----------------------------------------------------------------------------------------------------


@given(outputs, outputs)
def test_unordered_compares_the_stripped_lines_as_a_multiset(printed: str, expected: str):
    first, second = (Counter(line.strip() for line in text.strip().split("\n")) for text in (printed, expected))
    assert unordered(printed, expected) == (first == second)


def test_unordered_counts_lines_and_does_not_touch_what_is_in_them():
    assert unordered("b\n a \n\nc\n", "a\nb\n\nc")
    assert not unordered("a\nb", "a\na\nb")
    assert not unordered("a b", "b a")
    assert not unordered("1.0", "1")


# --- float ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1.0000001 2", "1 2"),
        ("1\n2", "1 2"),
        ("x 0.30000000000000004", "x 0.3"),
        ("1000001", "1000000"),
        ("inf", "Infinity"),
        ("-inf", "-inf"),
        ("0.0000000001", "0"),
        ("-0", "0"),
        ("1e400", "1e400"),
        ("yes 1e-3", "yes 0.001"),
        ("", " \n"),
        ("9" * 20_000, "9" * 20_000),
    ],
)
def test_float_accepts_numbers_within_the_tolerance_and_equal_words(printed: str, expected: str):
    assert close(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1.00001", "1"),
        ("1.0 2", "1"),
        ("1", "1 2"),
        ("nan", "1"),
        ("nan", "nan"),
        ("NaN", "nan"),
        ("-nan", "-nan"),
        ("1", "nan"),
        ("inf", "1e308"),
        ("1e308", "inf"),
        ("-inf", "inf"),
        ("1e400", "inf"),
        ("inf", "1e400"),
        ("Yes", "yes"),
        ("1_000", "1000"),
        ("١", "1"),
        ("0x1", "1"),
        ("1,0", "1.0"),
        ("", "0"),
        ("word", "1"),
        ("1", "word"),
        ("0." + "3" * 5000, "0.333333333"),
    ],
)
def test_float_rejects_everything_else(printed: str, expected: str):
    assert not close(printed, expected)


def test_the_larger_of_the_two_tolerances_counts_relative_to_what_is_expected():
    assert matches_with_tolerance("110", "100", rtol=0.1, atol=0)
    assert not matches_with_tolerance("100", "90", rtol=0.1, atol=0)
    assert matches_with_tolerance("100", "90", rtol=0.1, atol=10)
    assert not matches_with_tolerance("1.5", "1", rtol=0, atol=0)
    assert matches_with_tolerance("1.50", "1.5", rtol=0, atol=0)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_float_agrees_with_the_formula(value: float, target: float):
    within = abs(Decimal(value) - Decimal(target)) <= max(Decimal("1e-9"), Decimal("1e-6") * abs(Decimal(target)))
    edge = max(1e-9, 1e-6 * abs(target))
    if abs(abs(value - target) - edge) > 1e-9 * edge:  # at the very edge the formula is rounded
        assert close(repr(value), repr(target)) == within


# --- Hostile output ------------------------------------------------------------------------------------------------

MEGABYTES = 4 << 20
FLOODS = {
    "blanks": " " * MEGABYTES,
    "lines": "\n" * MEGABYTES + "x",
    "lines of blanks": "x" + "\n \t" * (MEGABYTES // 3) + "x",
    "words": "1 " * (MEGABYTES // 2),
    "one word": "x" * MEGABYTES,
    "digits": "1" * MEGABYTES,
    "digits after the point": "1." + "0" * MEGABYTES,
    "zeros after the point": "0." + "0" * MEGABYTES + "1",
    "exponent": "1e" + "9" * MEGABYTES,
    "huge exponents": "1e999999999999999999 " * (MEGABYTES // 21),
    "signs": "+-" * (MEGABYTES // 2),
    "almost a number": "1" * MEGABYTES + "x",
    "not UTF-8": "\ufffd" * MEGABYTES,
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("expected", ["1", "1 2\n3", "x\n" * 1000])
def test_a_flood_takes_linear_time_and_hardly_any_memory(flood: str, expected: str):
    text = FLOODS[flood]
    for rule in (*CHECKERS.values(), close):
        tracemalloc.start()
        started = time.process_time()
        rule(text, expected)
        used_s = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used_s < 5  # quadratic time takes hours
        assert peak < 3 * sys.getsizeof(text)  # a list of all words or lines takes far more
