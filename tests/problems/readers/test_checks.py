"""Test code that readers write, judged: the rules of EvalPlus, and the replacement of pytest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError, Program
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.readers import checks

from .test_layouts import KODCODE


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def status(judge: LocalJudge, found: ProblemCandidate, source: str) -> str:
    return str(judge.submit(JudgeJob(found.problem, Program(source))).result(60).status)


def plus(read, name: str, body: str, inputs: list[list[object]], margin: float = 0) -> ProblemCandidate:
    return read(
        "humaneval_plus",
        task_id="HumanEval/1",
        prompt=f"def {name}(x):\n",
        canonical_solution=f"    return {body}\n",
        entry_point=name,
        base_input=inputs[:1],
        plus_input=inputs[1:],
        atol=margin,
    )


@pytest.mark.parametrize(
    ("name", "reference", "inputs", "margin", "program", "expected"),
    [
        ("f", "x + 1", [[1], [2**70]], 0, "x + 1", "accepted"),
        ("f", "x + 1", [[1], [5]], 0, "2", "wrong_answer"),
        ("f", "x / 3", [[1.0]], 0, "x / 3 + 1e-8", "accepted"),
        ("f", "x / 3", [[1.0]], 0, "x / 3 + 1e-3", "wrong_answer"),
        ("f", "x / 3", [[1.0]], 0.01, "x / 3 + 1e-3", "accepted"),
        ("f", "[x / 3, x]", [[1.0]], 0, "[x / 3 + 1e-8, x]", "accepted"),
        ("f", "[x / 3, x]", [[1.0]], 0, "[x / 3 + 1e-8]", "wrong_answer"),
        ("f", "x", [[float("inf")]], 0, "x", "accepted"),
        ("f", "x", [[float("inf")]], 0, "1.0", "wrong_answer"),
        ("f", "x + 0.0000001", [[1.0]], 0, "1", "wrong_answer"),
        ("f", "[x / 3] * 2", [[1.0]], 0, "(x / 3 + 1e-8, x / 3)", "wrong_answer"),
        ("f", "x", [[[3, 1]]], 0, "x.sort() or x", "wrong_answer"),
        ("find_char_long", "['a', 'b']", [[1]], 0, "['b', 'a']", "accepted"),
        ("check_str", "object() if x else None", [[1], [0]], 0, "bool(x)", "accepted"),
        ("check_str", "object() if x else None", [[1], [0]], 0, "True", "wrong_answer"),
        ("find_zero", "-x[0] / x[1]", [[[2, 4]]], 1e-4, "-0.50001", "accepted"),
        ("find_zero", "-x[0] / x[1]", [[[2, 4]]], 1e-4, "-0.6", "wrong_answer"),
    ],
)
def test_results_are_compared_with_those_of_the_reference(
    read, judge, name, reference, inputs, margin, program, expected
):
    found = plus(read, name, reference, inputs, margin)
    assert status(judge, found, f"def {name}(x):\n    return {program}\n") == expected


CODE_OF_EVALPLUS = """
import numpy as np
import math

def is_floats(x) -> bool:
    if isinstance(x, float):
        return True
    return isinstance(x, (list, tuple)) and all(isinstance(i, float) for i in x)


def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        {compared}
    else:
        assert exact_match


def _poly(xs, x):
    return sum([coeff * math.pow(x, i) for i, coeff in enumerate(xs)])


"""
COMPARED = "assert np.allclose(out, exp, rtol=1e-07, atol=atol)", "np.testing.assert_allclose(out, exp, atol=atol)"
LAZY = (
    "[]",
    "()",
    "np.array([])",
    "[[]]",
    "x[0]",
    "0.5",
    "[0.5]",
    "(0.5, 0.5)",
    "float('nan')",
    "set()",
    "np.full(2, 0.5)",
)


def published(read, layout: str, check: str, compared: str = COMPARED[0]) -> ProblemCandidate:
    test = CODE_OF_EVALPLUS.format(compared=compared) + check
    row = {"task_id": "X/1", "prompt": "def f(x):\n    '''Halves.'''\n", "entry_point": "f", "test": test}
    solution = "import numpy as np\ndef f(x):\n    return [0.5, 0.5]"
    return read(layout, **row, canonical_solution="    return [0.5, 0.5]", code=solution, test_list=["f(1)"])


@pytest.mark.parametrize(
    ("layout", "compared", "check"),
    [
        ("humaneval_plus", COMPARED[0], "def check(candidate):\n    assertion(candidate([1.0]), [0.5, 0.5], 0)\n"),
        ("mbpp_plus", COMPARED[1], "for inp in [[[1.0]]]:\n    assertion(f(*inp), [0.5, 0.5], 0)\n"),
    ],
)
def test_published_code_of_evalplus_compares_as_its_evaluator_does(read, judge, layout, compared, check):
    found = published(read, layout, check, compared=compared)
    results = {one: status(judge, found, f"import numpy as np\ndef f(x):\n    return {one}") for one in LAZY}
    assert set(results.values()) == {"wrong_answer"}, results
    assert status(judge, found, "def f(x):\n    return [0.5 + 1e-8, 0.5]") == "accepted"
    assert status(judge, found, "def f(x):\n    return [0.5 + 1e-4, 0.5]") == "wrong_answer"


def test_a_root_must_be_within_tolerance_from_both_sides(read, judge):
    check = "def check(candidate):\n    assert _poly([1, 2], candidate([1, 2])) <= 0.0001\n"
    found = published(read, "humaneval_plus", check)
    assert [status(judge, found, f"def f(x):\n    return {value}") for value in ("-0.5", "-1e9", "float('nan')")] == [
        "accepted",
        "wrong_answer",
        "wrong_answer",
    ]


HELPER = "def encode(s):\n    return s[::-1]\n"
TO_COMPLETE = "def decode(s):\n    '''Decodes what encode returns.'''\n"
CHEAT = "def encode(s):\n    return s\n\ndef decode(s):\n    return s\n"


@pytest.mark.parametrize(
    "prompt", [HELPER + TO_COMPLETE, TO_COMPLETE + HELPER, f"{HELPER}@(lambda f: f)\n{TO_COMPLETE}"]
)
@pytest.mark.parametrize("layout", ["humaneval", "humanevalpack"])
def test_helpers_of_a_prompt_are_the_prompts_wherever_they_stand(read, judge, layout, prompt):
    row = {
        "task_id": "Python/38",
        "prompt": prompt,
        "entry_point": "decode",
        "canonical_solution": "",
        "test": "def check(decode):\n    assert decode(encode('abc')) == 'abc'\n\ncheck(decode)",
    }
    found = read(layout, **row)
    assert "def encode" in found.problem.tests.preamble
    assert "decode" not in found.problem.tests.preamble.replace("Decodes", "")
    assert status(judge, found, CHEAT) == "wrong_answer"
    assert status(judge, found, f"{HELPER}\ndef decode(s):\n    return encode(s)") == "accepted"
    assert status(judge, found, "def decode(s):\n    return encode(s)") == "accepted"


def test_a_program_cannot_take_the_place_of_the_reference(read, judge):
    found = plus(read, "f", "x + 1", [[1]])
    assert status(judge, found, "_reference = f = lambda x: 7\n_ARGUMENTS = []\ncheck = print") == "wrong_answer"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a + b", "accepted"),
        ("round(a + b, 3) if b is not None else a + b", "accepted"),  # approximately
        ("a + b + 1e-3 if b is not None else a + b", "wrong_answer"),
        ("a + b if b is not None else 0", "wrong_answer"),  # raises nothing
        ("a + b if b is not None else [][0]", "runtime_error"),  # raises something else
    ],
)
def test_tests_for_pytest_run_without_it(read, judge, body, expected):
    found = read("kodcode", **KODCODE)
    assert status(judge, found, f"def add(a, b):\n    return {body}\n") == expected


_VALUES = (
    *(0, 1, -1, 1e-13, 1 + 1e-7, 1.01, 1e300, math.inf, -math.inf, math.nan, complex(math.inf, 0), 1j),
    *(True, Fraction(1), [1.0], (1.0, math.inf), [1.0, 5.0], [1], [True]),
    *({"a": 1.0, "b": math.inf}, {"a": 1.0, "b": 2.0}, {"a": True}, {"a": 1}),
)
_MARGINS = (*({}, {"rel": 1e-2}, {"abs": 1e-2}, {"rel": 1e-2, "abs": 1e-12}, {"abs": math.inf}, {"abs": 0}),)


@pytest.mark.parametrize("margins", _MARGINS)
def test_the_replacement_of_approx_decides_like_pytest(margins):
    names: dict[str, Any] = {}
    exec(checks._SHIM, names)
    differing = [
        (found, expected)
        for found, expected in itertools.product([*_VALUES, None, "1", b"1", {1.0}], _VALUES)
        if (found == names["pytest"].approx(expected, **margins)) != (found == pytest.approx(expected, **margins))
    ]
    assert differing == []


def test_tests_that_import_numpy_find_it(read, judge):
    row = {
        "task_id": "HumanEval/7",
        "prompt": "def add(a, b):\n",
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "test": "import numpy as np\n\ndef check(candidate):\n    np.testing.assert_allclose(candidate(1, 2), 3)\n",
    }
    found = read("humaneval", **row)
    assert found.problem.profile == "plain_numpy"
    assert status(judge, found, found.problem.solutions[0]) == "accepted"
    assert status(judge, found, "def add(a, b):\n    return a") == "wrong_answer"
    asserts = {"task_id": 2, "text": "Add.", "test_list": ["assert add(1, 2) == 3"]}
    assert read("mbpp", **asserts, code="import numpy as np\ndef add(a, b): ...").problem.profile == "plain_numpy"
    assert read("mbpp", **asserts, code="def add(a, b): ...").problem.profile == "plain"
