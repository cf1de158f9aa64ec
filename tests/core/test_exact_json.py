"""Numbers of JSON that are carried as they stand in the text, or are refused."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core.errors import DataError
from autoclave.core.json import foreign_json, parse_object


@pytest.mark.parametrize(
    "text", ["0.1", "1.10", "-0.0", "1e5", "1E+300", "5e-324", "123456789012345678901234567890", "0.30000000000000004"]
)
def test_a_number_that_a_float_or_an_integer_holds_is_taken(text: str):
    assert Decimal(repr(foreign_json(text, is_exact=True))) == Decimal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0.12345678901234567891",
        "9007199254740993.0",
        "1e400",
        "-1e999999999999999999999",
        "1e-400",
        "1e-99999999999999999999",
    ],
)
def test_a_number_that_would_be_rounded_is_refused_with_the_fix(text: str):
    with pytest.raises(ValueError, match=r"would be rounded to .*: give it as a text"):
        foreign_json(text, is_exact=True)
    with pytest.raises(DataError, match=r"^changes:7: not usable JSON .the number .* would be rounded"):
        parse_object(f'{{"parameters": [[{text}]]}}', "changes:7", is_exact=True)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_json_is_refused(text: str):
    with pytest.raises(ValueError, match="no number in JSON"):
        foreign_json(text, is_exact=True)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_what_python_writes_is_read_as_it_was(value: object):
    assert foreign_json(json.dumps(value), is_exact=True) == value
