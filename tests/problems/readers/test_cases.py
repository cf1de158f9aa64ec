"""Forms of tests in sets."""

from __future__ import annotations

import pytest

from autoclave.core import CallCase, CallTests, StdinCase, StdinTests
from autoclave.problems.readers.cases import columns_as_tests, records_as_tests
from autoclave.problems.readers.row import UnusableRow

LISTS = "class Solution:\n    def f(self, xs: List[int]) -> List[int]:\n        "


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1 2\r\n3\r\n", "1 2\n3\n"),
        (["1 2", "3"], "1 2\n3\n"),
        (["1 2\n3\n"], "1 2\n3\n"),
        ([[1, 2], [3]], "1 2\n3\n"),
        (7, "7"),
        (12345678901234567890123, "12345678901234567890123"),
        (1.5, "1.5"),
    ],
)
def test_inputs_and_outputs_of_programs_become_text(written, text):
    assert columns_as_tests({"inputs": [written], "outputs": [written]}, "", ()) == StdinTests(
        "stdin", [StdinCase(text, text)]
    )


def test_integers_of_any_length_reach_a_program():
    digits = "9" * 5000
    tests = columns_as_tests(f'{{"inputs": [{digits}], "outputs": [[{digits}]]}}', "", ())
    assert tests == StdinTests("stdin", [StdinCase(digits, digits + "\n")])
    with pytest.raises(UnusableRow, match="more digits"):
        columns_as_tests(f'{{"inputs": [[{digits}]], "outputs": [1], "fn_name": "f"}}', "", ())


def test_integers_beyond_64_bits_are_arguments():
    tests = columns_as_tests(
        '{"inputs": [[36893488147419103232]], "outputs": [-36893488147419103232], "fn_name": "f"}', "", ()
    )
    assert tests == CallTests("call", "f", [CallCase([2**65], -(2**65))])


@pytest.mark.parametrize(
    ("outputs", "code", "expected"),
    [
        ([[False], [True]], "def f(n):\n\t", [False, True]),
        ([[[1, 2]], [[]]], "def f(n):", [[1, 2], []]),
        ([9, 8], "def f(n):", [9, 8]),
        ([[1, 2], [3]], "def f(n):", [[1, 2], [3]]),
        ([[3], [4]], LISTS, [[3], [4]]),
        ([[[3]], [[4, 5]]], LISTS, [[3], [4, 5]]),
        ([["a"], ["b"]], "def f(n) -> str:", ["a", "b"]),
    ],
)
def test_outputs_wrapped_in_lists_are_unwrapped(outputs, code, expected):
    tests = columns_as_tests({"inputs": [[[1]], [[2]]], "outputs": outputs, "fn_name": "f"}, code, ())
    assert isinstance(tests, CallTests)
    assert [case.output for case in tests.cases] == expected


def test_outputs_in_lines_are_as_they_are():
    tests = columns_as_tests({"inputs": ["3", "4"], "outputs": ["[3]", "[4]"], "fn_name": "f"}, "", ())
    assert tests == CallTests("call", "f", [CallCase([3], [3]), CallCase([4], [4])])


@pytest.mark.parametrize(
    ("starter_code", "solutions", "entry_point"),
    [
        ("class Solution:\n    def f(self, n):", (), "Solution.f"),
        ("", ("class Solution:\n    def f(self, n): pass",), "Solution.f"),
        ("def f(n):", ("class Solution:\n    def f(self, n): pass",), "f"),
        ("", (), "f"),
    ],
)
def test_methods_are_called_where_the_code_says_so(starter_code, solutions, entry_point):
    tests = columns_as_tests({"inputs": [[1]], "outputs": [1], "fn_name": "f"}, starter_code, solutions)
    assert isinstance(tests, CallTests)
    assert tests.entry_point == entry_point


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"input": "[[2, 3], 5]", "output": "9"}, CallCase([[2, 3], 5], 9)),
        ({"input": [[2, 3], 5], "output": 9}, CallCase([[2, 3], 5], 9)),
        ({"input": "['a', True]", "output": "None"}, CallCase(["a", True], None)),
        ({"input": '[1]\n"b"', "output": "[false]"}, CallCase([[1], "b"], False)),
        ({"input": "7", "output": "word"}, CallCase([7], "word")),
    ],
)
def test_calls_in_records(case, expected):
    tests = records_as_tests([case | {"type": "function_call", "fn_name": "f"}], "", ())
    assert tests == CallTests("call", "f", [expected])


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ({"inputs": [], "outputs": []}, "no_tests"),
        ({"inputs": ["1"], "outputs": []}, "uneven_tests"),
        ({"inputs": ["1"]}, "missing_field"),
        ({"inputs": "1", "outputs": ["1"]}, "wrong_type"),
        ({"inputs": [{}], "outputs": ["1"]}, "wrong_type"),
        ({"inputs": ["1"], "outputs": [" \n"]}, "no_outputs"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "a b"}, "no_function"),
        ("nonsense", "not_json"),
        ("", "no_tests"),
        (3, "wrong_type"),
    ],
)
def test_columns_that_are_not_tests_have_a_reason(tests, reason):
    with pytest.raises(UnusableRow) as caught:
        columns_as_tests(tests, "", ())
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ([], "no_tests"),
        ([{"input": "1"}], "missing_field"),
        (["1"], "wrong_type"),
        ([{"input": "1", "output": "1", "type": "interactive"}], "unknown_tests"),
        ([{"input": "1", "output": "1", "type": "function_call"}], "no_function"),
        (
            [{"input": "1", "output": "1", "type": "stdin"}, {"input": "1", "output": "1", "type": "functional"}],
            "mixed_tests",
        ),
    ],
)
def test_records_that_are_not_tests_have_a_reason(tests, reason):
    with pytest.raises(UnusableRow) as caught:
        records_as_tests(tests, "", ())
    assert caught.value.reason == reason
