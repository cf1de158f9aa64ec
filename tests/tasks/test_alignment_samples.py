"""Variables of alignment samples, and runs that give none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import AlignmentLimitsConfig
from autoclave.core import (
    AlignmentSample,
    AnswerTests,
    CallCase,
    CallTests,
    Problem,
    StdinCase,
    StdinTests,
    Trace,
    TraceStatus,
)
from autoclave.tasks.alignment_samples import Unusable, alignment_sample_of, constants_of, input_of, is_short_input

LIMITS = AlignmentLimitsConfig()
SCRIPT = Problem("Add.", StdinTests("stdin", [StdinCase("3 4\n", "7\n")]), id="add")
CALL = Problem("Add.", CallTests("call", "f", [CallCase([3, [4, "x"]], 7)]), id="call")


def trace(variables: dict[str, str], *, entry: str = "<module>", **changes: Any) -> Trace:
    return Trace(**{"test": 0, "status": TraceStatus.FINISHED, "entry": entry, "variables": variables, **changes})


def alignment_sample(
    program: str, variables: dict[str, str], problem: Problem = SCRIPT, **options: Any
) -> AlignmentSample | Unusable:
    entry = "f" if problem is CALL else "<module>"
    changes = options.pop("changes", {})
    return alignment_sample_of(
        problem, program, trace(variables, entry=entry, **changes), **{"limits": LIMITS, **options}
    )


def asked(program: str, variables: dict[str, str], problem: Problem = SCRIPT, **options: Any) -> list[str]:
    found = alignment_sample(program, variables, problem, **options)
    assert isinstance(found, AlignmentSample), found
    return list(found.variables)


def why_not(program: str, variables: dict[str, str], problem: Problem = SCRIPT, **options: Any) -> str:
    found = alignment_sample(program, variables, problem, **options)
    assert isinstance(found, Unusable), found
    return found.reason


def test_an_alignment_sample_has_program_input_values_and_where_it_came_from():
    found = alignment_sample("a, b = map(int, input().split())\nc = a - b", {"a": "3", "b": "4", "c": "-1"}, version=7)
    assert isinstance(found, AlignmentSample)
    assert (found.problem_id, found.test, found.entry, found.input) == ("add", 0, "<module>", "3 4\n")
    assert found.values == {"a": 3, "b": 4, "c": -1}
    assert (found.informative, found.source, found.version) == (["c"], "failed", 7)


def test_the_input_of_a_call_is_the_call():
    assert input_of(CALL, 0) == "f(3, [4, 'x'])"
    assert input_of(Problem("?", AnswerTests("answer", "3", "math")), 0) is None


@pytest.mark.parametrize(
    ("program", "variables"),
    [
        ("a = int(input().split()[0])", {"a": "3"}),
        ("line = input()", {"line": "'3 4'"}),
        ("s = input().split()[1]", {"s": "'4'"}),
        ("limit = 10", {"limit": "10"}),
        ("a = float(input().split()[0])\nlimit = 10", {"limit": "10"}),
    ],
)
def test_echoes_of_the_input_and_constants_alone_give_no_alignment_sample(program: str, variables: dict[str, str]):
    assert why_not(program, variables) == "nothing_informative"
    assert asked(program, variables, min_informative=0) == list(variables)


def test_an_echo_is_of_the_same_type():
    assert asked("def f(n, x): y = float(n)", {"n": "3", "y": "3.0"}, CALL) == ["n", "y"]
    assert why_not("def f(n, x): y = x[1]", {"n": "3", "y": "'x'"}, CALL) == "nothing_informative"


def test_informative_variables_come_before_constants():
    flood = {f"c{number}": str(number) for number in range(90)}
    program = "\n".join(f"{name} = {value}" for name, value in flood.items()) + "\ntotal = c3 + c8"
    found = alignment_sample(program, {**flood, "total": "11"}, limits=LIMITS.model_copy(update={"variables": 3}))
    assert isinstance(found, AlignmentSample)
    assert len(found.variables) == 3
    assert "total" in found.variables
    assert found.informative == ["total"]


@pytest.mark.parametrize(
    ("program", "is_constant"),
    [
        ("x = 3", True),
        ("x = 3  # three", True),
        ("def f(n):\n    x = 3;\n    return x + n == 3", True),
        ("a = 1; x = 3; b = 2", True),
        ("x = 0x3", True),
        ("x = 3\nx += 1", False),
        ("x = 3\nprint(x := 4)", False),
        ("for x in range(4):\n    pass", False),
        ("x = 3\nfor x in range(4):\n    pass", False),
        ("x = 3\na, x = f()", False),
        ("x = 3\nx, a = f()", False),
        ("x = y = 3", False),
        ("x = 1 + 2", False),
        ("xx = 3\nx = len('abc')", False),
    ],
)
def test_a_constant_is_set_in_one_place_to_a_literal(program: str, is_constant: bool):
    assert (constants_of(program).get("x") == "3") is is_constant


def test_a_literal_counts_however_it_is_spelled():
    assert constants_of('a = "add"\nb = 1e3\nc = -5\nd = "it\'s"\ne = "a\\n"') == {
        "a": "'add'",
        "b": "1000.0",
        "c": "-5",
        "d": '"it\'s"',
        "e": '"a\\n"',
    }


def test_long_inputs_are_not_written_out_to_measure_them():
    long = Problem(
        "?", CallTests("call", "f", [CallCase([list(range(10**6))], 0), CallCase([[1, "a"], {"b": 2}], 0)]), id="x"
    )
    assert not is_short_input(long, 0, 1000)
    assert is_short_input(long, 1, len("f([1, 'a'], {'b': 2})"))
    assert not is_short_input(long, 1, len("f([1, 'a'], {'b': 2})") - 1)


@given(st.text(max_size=300))
def test_any_text_has_topic_words(program: str):
    assert isinstance(constants_of(program), dict)


def test_the_search_for_constants_takes_linear_time():
    constants_of("x," * 500_000)  # were it the square of it, this would take hours
    constants_of(", " * 500_000 + "x")
    constants_of("#" + "-" * 500_000)
    constants_of("\n".join(f"x{number} = {number}" for number in range(100_000)))


def test_large_values_and_large_runs_are_left_out():
    assert asked("x = 'a' * 300\ny = 2 - 3", {"x": repr("a" * 300), "y": "-1"}) == ["y"]
    assert why_not("# " + "x" * 9000, {"y": "-1"}) == "too_long"
    long = Problem("Add.", StdinTests("stdin", [StdinCase("1 " * 2000, "")]), id="long")
    assert why_not("y = 1 - 2", {"y": "-1"}, long) == "too_long"


@pytest.mark.parametrize("status", [TraceStatus.RAISED, TraceStatus.NO_VALUES])
def test_only_runs_that_end_normally_are_alignment_samples(status: TraceStatus):
    assert why_not("y = 1 - 2", {"y": "-1"}, changes={"status": status}) == "did_not_end_normally"


def test_lone_surrogates_give_no_alignment_sample():
    assert asked("x = chr(0xd800)\ny = 1 - 2", {"x": repr("\ud800"), "y": "-1"}) == ["y"]
    assert why_not("x = '\ud800'\ny = 1 - 2", {"y": "-1"}) == "no_text"


def test_an_alignment_sample_may_have_the_output_alone():
    of_output = {"asks": "output", "changes": {"result": "7\n", "is_result_whole": True}}
    found = alignment_sample("print(7)", {}, **of_output)
    assert isinstance(found, AlignmentSample)
    assert (found.variables, found.result) == ({}, "7\n")
    assert why_not("print(7)", {}, asks="output") == "no_small_result"
    cut = {"result": "7\n", "is_result_whole": False}
    assert why_not("print(7)", {}, asks="output", changes=cut) == "no_small_result"
    of_bytes = {"result": "b'x'", "is_result_whole": True}
    assert why_not("def f(a, b): return b'x'", {}, CALL, asks="output", changes=of_bytes) == "no_text"


def test_the_same_program_on_the_same_input_has_the_same_key():
    one = alignment_sample("y = 1 - 2", {"y": "-1"}, version=1)
    other = alignment_sample("y = 1 - 2", {"y": "-1"}, version=2)
    third = alignment_sample("y = 1 - 3", {"y": "-2"})
    assert isinstance(one, AlignmentSample)
    assert isinstance(other, AlignmentSample)
    assert isinstance(third, AlignmentSample)
    assert one.key == other.key != third.key
