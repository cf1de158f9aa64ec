"""A problem is the same after a round trip, and its digest is that of what decides a verdict."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given

from autoclave.core import (
    AnswerTests,
    CallCase,
    CallTests,
    CheckTests,
    DataError,
    Problem,
    StdinCase,
    StdinTests,
    StoredTests,
)
from tests import strategies

ADDITION = Problem("Add.", StdinTests("stdin", [StdinCase("3 4\n", "7\n")]), id="add")


@given(strategies.problems())
def test_a_problem_is_equal_after_a_round_trip(problem: Problem):
    line = json.dumps(problem.to_json())
    assert Problem.from_json(json.loads(line)) == problem


@given(strategies.problems())
def test_the_digest_is_equal_after_a_round_trip(problem: Problem):
    line = json.dumps(problem.to_json(), ensure_ascii=False)
    assert Problem.from_json(json.loads(line)).digest == problem.digest


def test_a_line_holds_what_differs_from_the_defaults():
    assert ADDITION.to_json() == {
        "format": "autoclave-problem/1",
        "id": "add",
        "statement": "Add.",
        "tests": {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "7\n"}]},
    }


def test_a_text_set_to_nothing_stays_nothing():
    problem = dataclasses.replace(ADDITION, profile="")  # its default is "lcb"
    assert Problem.from_json(problem.to_json()).profile == ""


def test_the_digest_is_the_sha256_of_the_canonical_form():
    # Stores address problems by digest, so this spelling can never change.
    canonical = (
        b'{"checker":"lcb","memory_limit_mb":null,"profile":"lcb",'
        b'"tests":{"cases":[{"input":"3 4\\n","output":"7\\n"}],"kind":"stdin"},"time_limit_s":null}'
    )
    assert ADDITION.digest == hashlib.sha256(canonical).hexdigest()


def test_the_digest_of_a_check_is_that_of_before_it_could_ask_for_changed_arguments():
    canonical = (
        b'{"checker":"lcb","memory_limit_mb":null,"profile":"lcb","tests":{"entry_point":"f","invocation":"i",'
        b'"kind":"check","preamble":"","source":"s"},"time_limit_s":null}'
    )
    problem = Problem("", CheckTests("check", "f", "s", "i"))
    changing = Problem("", CheckTests("check", "f", "s", "i", mutates_arguments=True))
    assert problem.digest == hashlib.sha256(canonical).hexdigest() != changing.digest
    assert "mutates_arguments" not in problem.to_json()["tests"]
    assert Problem.from_json(changing.to_json()).tests == changing.tests


@pytest.mark.parametrize(
    "label",
    [
        {"id": "other"},
        {"statement": "Sum."},
        {"starter_code": "def f"},
        {"solutions": ["print(7)"]},
        {"source": "mine"},
        {"released": datetime.date(2024, 3, 1)},
        {"difficulty": "hard"},
        {"tags": ["sum"]},
        {"language": "cpp"},  # a judge refuses a program in another language than the problem's
    ],
)
def test_the_digest_ignores_what_does_not_decide(label: dict[str, Any]):
    assert dataclasses.replace(ADDITION, **label).digest == ADDITION.digest


@pytest.mark.parametrize(
    "decisive",
    [
        {"tests": StdinTests("stdin", [StdinCase("3 4\n", "8\n")])},
        {"tests": StdinTests("stdin", [StdinCase("3 4\n", "7\n"), StdinCase("3 4\n", "7\n")])},
        {"tests": AnswerTests("answer", "7", "math")},
        {"time_limit_s": 1.0},
        {"memory_limit_mb": 64},
        {"checker": "exact"},
        {"profile": "plain"},
    ],
)
def test_the_digest_changes_with_what_decides(decisive: dict[str, Any]):
    assert dataclasses.replace(ADDITION, **decisive).digest != ADDITION.digest


def test_every_field_either_decides_or_does_not():
    # A new field must be given its side here, and in one of the two tests above.
    decides = {"tests", "time_limit_s", "memory_limit_mb", "checker", "profile"}
    labels = {
        "format",
        "id",
        "statement",
        "starter_code",
        "solutions",
        "source",
        "released",
        "difficulty",
        "tags",
        "language",
    }
    assert {field.name for field in dataclasses.fields(Problem)} == decides | labels


def test_whole_and_decimal_spelling_of_a_limit_are_one_digest():
    first = Problem.from_json(ADDITION.to_json() | {"time_limit_s": 2})
    second = Problem.from_json(ADDITION.to_json() | {"time_limit_s": 2.0})
    assert first.digest == second.digest


def test_stored_tests_have_the_digest_they_are_stored_under():
    problem = Problem("Add.", StoredTests("stored", "ab" * 32), id="add")
    assert problem.digest == "ab" * 32


def test_a_problem_without_an_id_gets_one_from_its_digest():
    nameless = {key: value for key, value in ADDITION.to_json().items() if key != "id"}
    assert Problem.from_json(nameless).id == ADDITION.digest[:16]


def test_infinity_is_not_nothing():
    infinite, nothing = (Problem("s", CallTests("call", "f", [CallCase([], [out])])) for out in (float("inf"), None))
    assert infinite.digest != nothing.digest
    assert json.loads(json.dumps(infinite.to_json()))["tests"]["cases"][0]["output"] == [float("inf")]


def test_a_date_may_be_a_midnight_as_some_sources_write_it():
    problem = Problem.from_json(ADDITION.to_json() | {"released": "2024-01-06T00:00:00"})
    assert problem.released == datetime.date(2024, 1, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "autoclave-problem/2"}, 'format = "autoclave-problem/2": must be "autoclave-problem/1"'),
        ({"format": None}, 'format = null: must be "autoclave-problem/1"'),
        ({"statment": "x"}, "statment: no such field; did you mean statement?"),
        ({"zzz": 1}, "zzz: no such field; known are checker, "),
        ({"a\nb": 1}, '"a\\nb": no such field; known are '),
        ({"statement": None}, "statement = null: must be a valid string"),
        ({"statement": 7}, "statement = 7: must be a valid string"),
        ({"statement": "\ud800"}, 'statement = "\\ud800": must be well-formed Unicode; U+D800 is half of a surrogate'),
        ({"tests": "x"}, 'tests = "x": must be an object'),
        ({"tests": {"cases": []}}, "tests.kind: required field is missing; known are stdin, call, check, answer, sto"),
        ({"tests": {"kind": "stdio"}}, 'tests.kind = "stdio": no such kind; did you mean stdin?'),
        ({"tests": {"kind": "stdin", "cases": []}}, '(problem "add"): tests.cases = []: a problem needs at least one'),
        (
            {"tests": {"kind": "stdin", "cases": [{"input": "", "outptu": ""}]}},
            "tests.cases.0.outptu: no such field; did you mean output?",
        ),
        ({"tests": {"kind": "stdin", "cases": [{"input": ""}]}}, "tests.cases.0.output: required field is missing"),
        ({"tests": {"kind": "stdin", "cases": {"input": ""}}}, 'tests.cases = {"input": ""}: must be a valid list'),
        (
            {"tests": {"kind": "call", "entry_point": "f", "cases": [{"arguments": {}, "output": 0}]}},
            "tests.cases.0.arguments = {}: must be a valid list",
        ),
        (
            {"tests": {"kind": "call", "entry_point": "f(", "cases": [{"arguments": [], "output": 0}]}},
            "tests.entry_point = \"f(\": must be a name such as 'f' or 'Solution.f'",
        ),
        (
            {"tests": {"kind": "answer", "expected": "1", "comparator": "maths"}},
            "tests.comparator = \"maths\": must be 'math', 'value' or 'text'",
        ),
        ({"time_limit_s": 0}, "time_limit_s = 0.0: must be greater than 0"),
        ({"time_limit_s": float("nan")}, "time_limit_s = nan: must be greater than 0"),
        ({"time_limit_s": "2"}, 'time_limit_s = "2": must be a valid number'),
        ({"time_limit_s": True}, "time_limit_s = true: must be a valid number"),
        ({"time_limit_s": 10**400}, "time_limit_s = 1000"),
        ({"memory_limit_mb": -1}, "memory_limit_mb = -1: must be greater than 0"),
        ({"memory_limit_mb": 1.5}, "memory_limit_mb = 1.5: must be a valid integer"),
        ({"released": 5}, "released = 5: must be a date as text, such as 2024-03-01"),
        ({"released": "2024-13-01"}, 'released = "2024-13-01": must be a valid date'),
        ({"tags": "sum"}, 'tags = "sum": must be a valid list'),
        ({"statement": ["x" * 10_000]}, "..."),
    ],
)
def test_a_mistake_is_named_in_one_line_with_path_value_and_rule(change: dict[str, Any], message: str):
    with pytest.raises(DataError) as caught:
        Problem.from_json(ADDITION.to_json() | change, "file:1")
    text = str(caught.value)
    assert text.startswith("file:1")
    assert message in text
    assert text.isprintable()  # no line break either
    assert len(text) < 320


@pytest.mark.parametrize("name", ["statement", "tests"])
def test_a_missing_field_is_named(name: str):
    value = {key: value for key, value in ADDITION.to_json().items() if key != name}
    with pytest.raises(DataError, match=f"^file:1: {name}: required field is missing$"):
        Problem.from_json(value, "file:1")


def test_a_misspelt_field_is_blamed_before_the_one_it_leaves_out():
    value = {"format": "autoclave-problem/1", "statment": "x", "tests": ADDITION.to_json()["tests"]}
    with pytest.raises(DataError, match=r"^file:1: statment: no such field; did you mean statement\?$"):
        Problem.from_json(value, "file:1")


@pytest.mark.parametrize(
    ("checker", "complaint"),
    [
        (5, "checker = 5: must be a valid string"),
        ({"name": "floot"}, 'checker.name = "floot": no such name; did you mean float?'),
        ({}, "checker.name: required field is missing; known are float, custom"),
        ({"name": "float", "rtol": 1e-6}, "checker.atol: required field is missing"),
        ({"name": "float", "rtol": "x", "atol": 0}, 'checker.rtol = "x": must be a valid number'),
        ({"name": "custom", "sauce": ""}, "checker.sauce: no such field; did you mean source?"),
    ],
)
def test_a_checker_that_cannot_be_read_is_named(checker: Any, complaint: str):
    with pytest.raises(DataError) as caught:
        Problem.from_json(ADDITION.to_json() | {"checker": checker}, "p.jsonl:3")
    assert str(caught.value) == f"p.jsonl:3: {complaint}"
