"""Rules for returned values: Python's equality after turning a top-level tuple into a list."""

from __future__ import annotations

from typing import Any

import pytest

from autoclave.judge.values import matches_value


@pytest.mark.parametrize(
    ("result", "expected"),
    [(1, 1.0), (True, 1), ((1, 2), [1, 2]), ([[1]], [[1]]), ({"a": 1}, {"a": True}), (None, None), ("", "")],
)
def test_equal_values_match(result: Any, expected: Any):
    assert matches_value(result, expected)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([(1, 2)], [[1, 2]]),
        ({1: 2}, {"1": 2}),
        ({1, 2}, [1, 2]),
        ("1", 1),
        (float("nan"), float("nan")),
        (1.0000001, 1),
        (None, False),
        (b"a", "a"),
    ],
)
def test_different_values_do_not_match(result: Any, expected: Any):
    assert not matches_value(result, expected)
