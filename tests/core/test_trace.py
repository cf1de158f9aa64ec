"""The noun: what it says of itself, and literals that give back value and type."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given

from autoclave.core import DataError, Trace
from autoclave.core.json import from_plain, to_plain
from autoclave.core.trace import literal, value_of
from tests import strategies


@given(strategies.traces())
def test_a_trace_is_equal_after_a_round_trip(trace: Trace):
    assert from_plain(Trace, json.loads(json.dumps(to_plain(trace))), "file:1") == trace


@given(strategies.traces())
def test_there_is_a_status_or_a_fault(trace: Trace):
    assert (trace.status is None) == (trace.fault is not None)


def test_another_format_is_refused():
    plain = to_plain(Trace(test=0, status=None, entry="f")) | {"format": "autoclave-trace/2"}
    with pytest.raises(DataError, match="file:1: format"):
        from_plain(Trace, plain, "file:1")


@given(strategies.primitives())
def test_a_literal_gives_back_value_and_type(value: Any):
    again = value_of(literal(value))
    assert type(again) is type(value)
    assert repr(again) == repr(value)  # so NaN is itself and -0.0 is not 0.0


@pytest.mark.parametrize("text", ["", "x", "1 +", "f()", "(" * 10_000, "'", "__import__('os')"])
def test_what_is_no_literal_has_no_value(text: str):
    with pytest.raises(ValueError, match="is no literal"):
        value_of(text)


def test_not_finite_values_have_their_names():
    trace = Trace(test=0, status=None, entry="f", variables={"a": "nan", "b": "-inf", "c": "'nan'"})
    assert math.isnan(trace.values["a"])
    assert (trace.values["b"], trace.values["c"]) == (-math.inf, "nan")
