"""Traces: what the page says of them, what they are not allowed to touch, and accounts that lie."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.config import JudgeConfig, ProfileConfig
from autoclave.config.sandbox import SandboxConfig
from autoclave.core import (
    CheckTests,
    InputError,
    JudgeFault,
    Problem,
    Program,
    SandboxFault,
    StdinCase,
    StdinTests,
    Trace,
)
from autoclave.core.json import from_plain, to_plain
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge import traces as traces_module
from autoclave.judge.traced_values import MAX_DIGITS, MAX_TEXT_LENGTH, MAX_VARIABLES
from autoclave.judge.traces import MAX_RESULT_LENGTH, SharedCell
from autoclave.sandbox import Sandbox, open_sandbox

from .conftest import JUDGE, SANDBOX

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "trace.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^```python\n# (input|call):(.*)\n((?:.*\n)*?)```\n```text\n((?:.*\n)*?)```$", PAGE, re.MULTILINE
)


@pytest.fixture(scope="module")
def traced(judge: LocalJudge) -> Callable[..., Trace]:
    """traced(problem, source, index=0): the trace."""

    def trace_of(problem: Problem, source: str, index: int = 0) -> Trace:
        return judge.trace(JudgeJob(problem, Program(source), "x"), index).result(timeout=120)

    return trace_of


@pytest.fixture
def script(traced, stdin_problem) -> Callable[..., Trace]:
    """script("source", stdin=""): the trace of a main program."""
    return lambda source, stdin="": traced(stdin_problem((stdin, "never this")), source)


@pytest.fixture
def call(traced, call_problem) -> Callable[..., Trace]:
    """call("source", argument, ..., of="f"): the trace of a call."""
    return lambda source, *arguments, of="f", **options: traced(
        call_problem(of, (list(arguments), "never this"), **options), source
    )


# --- What the page says --------------------------------------------------------------------------------------------


def test_the_page_has_an_example_for_each_rule():
    assert len(EXAMPLES) == PAGE.count("```python") > 10


@pytest.mark.parametrize(("style", "given", "source", "shown"), EXAMPLES, ids=[example[2][:25] for example in EXAMPLES])
def test_an_example_of_the_page_is_true(script, call, style: str, given: str, source: str, shown: str):
    source = f"# {style}:{given}\n{source}"
    if style == "input":
        trace = script(source, stdin=f"{given.strip()}\n")
    else:
        name, _, arguments = given.strip().rstrip(")").partition("(")
        trace = call(source, *ast.literal_eval(f"({arguments},)"), of=name)
    end = [] if trace.status == "finished" else [f"{trace.status}: {trace.message}"]
    assert [f"{name} = {value}" for name, value in trace.variables.items()] + end == shown.splitlines()


def test_the_line_on_the_page_is_a_trace():
    (line,) = re.findall(r"^```json\n(.*)\n```$", PAGE, re.MULTILINE)
    assert to_plain(from_plain(Trace, json.loads(line), "docs/how-to/trace.md")) == json.loads(line)


def test_every_field_is_explained():
    explained = ",".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ", PAGE.partition("## Format")[2], re.MULTILINE))
    assert re.findall(r"\w+", explained) == ["format", *(name for name in Trace.__slots__ if name != "format")]


# --- Values --------------------------------------------------------------------------------------------------------


def test_values_of_different_types_stay_apart(call):
    source = "def f():\n    a = 1; b = 1.0; c = True; d = '1'; e = None; f = -0.0; g = float('nan'); h = float('-inf'); i = 'ä\\ud800\\n\"'; j = 0.1 + 0.2"
    assert call(source).variables == {
        **{"a": "1", "b": "1.0", "c": "True", "d": "'1'", "e": "None", "f": "-0.0", "g": "nan", "h": "-inf"},
        **{"i": "'ä\\ud800\\n\"'", "j": "0.30000000000000004"},
    }


def test_only_values_of_exactly_a_primitive_type_are_told(call):
    source = """
import enum, collections
class Int(int): pass
class Text(str): pass
class Liar:
    __class__ = int
    def __eq__(self, other): return True
    __hash__ = None
class Meta(type):
    def __eq__(self, other): return True
    def __hash__(self): return hash(int)
class Disguised(metaclass=Meta): pass
def f():
    a, b, c, d = Int(1), Text('x'), Liar(), Disguised()
    e = enum.IntEnum('E', 'one').one
    g, h, i, j = [1], b'x', 1j, (1,)
    k, l, m = f, enum, Int
    kept = 7
"""
    trace = call(source)
    assert (trace.status, trace.variables, trace.left_out) == ("finished", {"kept": "7"}, 0)


def test_short_lists_are_told_apart_as_they_are_when_the_function_returns(script, call):
    source = """
class List(list): pass
def f(n):
    a = [n, 1.5, 'x', True, None, [[]]]
    b, c, d, e = [(1,)], List(), [float('nan')], [0] * 101
    g = ['x' * 1000] * 20
    h = [0] * 100
    h.append(h)
    i = []
    return a
kept = f(2)
kept.clear()
other = [3]
f(2).clear()
"""
    reported = "[2, 1.5, 'x', True, None, [[]]]"
    assert call(source, 2).lists == {"a": reported, "i": "[]"}
    trace = script(source)
    assert trace.lists == {"kept": "[]", "other": "[3]", "f.a": reported, "f.i": "[]"}
    assert (trace.variables, trace.left_out) == ({"f.n": "2"}, 0)


def test_very_many_lists_do_not_cost_the_other_values(call):
    lists = "\n".join(f"    v{number} = ['\\x00' * 990] * 1" for number in range(150))
    trace = call(f"def f():\n    kept = 7\n{lists}")
    assert (trace.variables, len(trace.lists)) == ({"kept": "7"}, MAX_VARIABLES)


def test_what_is_too_large_is_left_out_and_counted_and_never_cut(call):
    source = (
        f"def f():\n    a = 'x' * {MAX_TEXT_LENGTH}; b = a + 'x'; c = 10**{MAX_DIGITS} - 1; d = -c - 1; e = 10**100_000"
    )
    trace = call(source)
    assert (list(trace.variables), trace.left_out) == (["a", "c"], 3)
    assert trace.values["a"] == "x" * MAX_TEXT_LENGTH


def test_of_very_many_variables_the_first_are_told(script):
    source = "\n".join(f"v{number} = {number}" for number in range(MAX_VARIABLES + 5))
    trace = script(source)
    assert (list(trace.variables), trace.left_out) == ([f"v{n}" for n in range(MAX_VARIABLES)], 5)


def test_names_of_the_interpreter_the_profile_the_preamble_and_imports_are_no_variables(script, call):
    source = "from math import tau\nimport sys as s\n__hidden__ = 1\ndef g(): pass\nclass A: inside = 1\nprint(e, pi, __name__)\nown = 1"
    assert list(script(source).variables) == ["own"]
    assert list(call("def f():\n    used = given\n    return used", preamble="given = 3").variables) == ["used"]


def test_reserved_names_of_a_function_are_no_variables_either(call):
    assert call("from __future__ import annotations\ndef f():\n    __x__ = 1\n    _y = 2").variables == {"_y": "2"}


def test_the_main_function_is_found_in_programs_with_future_imports_and_nested_calls(script):
    source = "from __future__ import annotations\ndef f(n: Nothing):\n    m = n + 1\n    return m\nif True:\n    print(max(f(f(1)), 0))"
    trace = script(source)
    assert (trace.result, trace.variables) == ("3\n", {"f.n": "2", "f.m": "3"})


def test_a_name_of_the_profile_that_the_program_assigns_is_its_own(script):
    assert script("from math import e\nx = e > 2\ne = 3").variables == {"x": "True", "e": "3"}


def test_a_function_that_only_reads_does_not_make_a_name_of_the_profile_a_variable(script):
    assert script("def g():\n    pi = 3\n    return pi\nx = g() + e\ndel g").variables == {"x": "5.718281828459045"}


def test_a_walrus_and_global_in_inner_scopes_count_for_the_module(script):
    source = "xs = [last := n for n in range(3)]\nclass A:\n    def g(self):\n        global seen\n        seen = 'yes'\nA().g()"
    assert script(source).variables == {"last": "2", "seen": "'yes'"}


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("[0, (1,), {'b': None}]", "[0, (1,), {'b': None}]"),
        ("{'b', 'a', 3}", "{'a', 'b', 3}"),
        ("set()", "set()"),
        ("frozenset({1})", "frozenset({1})"),
        ("None", "None"),
        ("object()", None),
        (f"'x' * {MAX_RESULT_LENGTH}", None),
        ("10**10_000", None),
        ("(x for x in [])", None),
    ],
)
def test_the_returned_value_is_a_literal_or_left_out(call, value: str, result: str | None):
    trace = call(f"def f(): return {value}")
    assert (trace.status, trace.result, trace.is_result_whole) == ("finished", result, result is not None)


def test_the_result_of_a_main_program_is_what_it_prints_and_a_long_one_is_cut(script):
    short, long = script("print('seen')"), script(f"print('x' * {MAX_RESULT_LENGTH})")
    assert (short.result, short.is_result_whole) == ("seen\n", True)
    assert (long.result, long.is_result_whole) == ("x" * MAX_RESULT_LENGTH, False)


# --- How runs end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "status", "message", "variables"),
    [
        ("x = 1\nimport sys; sys.exit()", "finished", "", {"x": "1"}),
        ("x = 1\nexit(3)", "raised", "exit code 3", {"x": "1"}),
        ("x = 1\nraise KeyError(x)", "raised", "KeyError (line 2)", {"x": "1"}),
        ("x = 1\ndef f(n):\n    return f(n + 1)\nf(0)", "raised", "RecursionError (line 3)", {"x": "1", "f.n": "0"}),
        ("x = 1\nimport os; os._exit(0)", "no_values", "it ended before its variables could be told", {}),
        ("x = 1\ny = [0] * 10**10", "no_values", "memory limit", {}),
        ("x = 1\nprint('x' * 10**7)", "no_values", "output limit", {}),
        ("x = 1\nimport os; os.kill(os.getpid(), 9)", "no_values", "killed by SIGKILL", {}),
        ("x = (", "no_values", "SyntaxError: '(' was never closed (line 1)", {}),
        ("", "finished", "", {}),
        (
            "import threading\nx = 0\ndef late():\n    global x\n    x = 5\nthreading.Timer(0.05, late).start()",
            "finished",
            "",
            {"x": "5"},
        ),
    ],
)
def test_a_trace_says_how_the_run_ended(
    traced, stdin_problem, source: str, status: str, message: str, variables: dict[str, str]
):
    trace = traced(stdin_problem(("", "never this"), time_limit_s=6.0), source)  # the limit that users have
    assert (trace.status, trace.message, trace.variables) == (status, message, variables)


def test_a_program_that_does_not_end_has_no_values(traced, stdin_problem):
    trace = traced(stdin_problem(("", ""), time_limit_s=0.5), "x = 1\nwhile True: pass")
    assert (trace.status, trace.variables) == ("no_values", {})
    assert "time limit" in trace.message  # on a very busy machine, that of the wall clock


def test_a_call_that_raises_has_the_values_of_that_moment(call):
    trace = call("def f(n):\n    left = n\n    while True:\n        left -= 1\n        n / left", 3)
    assert (trace.status, trace.message) == ("raised", "ZeroDivisionError (line 5)")
    assert (trace.variables, trace.result, trace.is_result_whole) == ({"n": "3", "left": "0"}, None, False)


@pytest.mark.parametrize(
    "source", ["from operator import add as f", "class F:\n    def __call__(self, a, b): return a + b\nf = F()"]
)
def test_an_entry_point_that_is_no_function_has_a_result_only(call, source: str):
    trace = call(source, 1, 2)
    assert (trace.status, trace.variables, trace.result) == ("finished", {}, "3")


def test_every_test_can_be_traced(traced, call_problem):
    problem = call_problem("f", ([1], 1), ([5], 5))
    assert [traced(problem, "def f(x): return x", index).variables for index in (0, 1)] == [{"x": "1"}, {"x": "5"}]


def test_a_deep_recursion_is_looked_at_from_its_outermost_call(call):
    source = "def f(n):\n    below = f(n - 1) if n else 0\n    return below + 1"
    assert call(source, 10_000).variables == {"n": "10000", "below": "10000"}


def test_calls_inside_of_the_entry_are_not_slowed_down(judge, call_problem):
    source = "def f(n):\n    t = 0\n    for i in range(n): t += g(i)\n    return t\ndef g(i): return abs(i)"
    problem = call_problem("f", ([400_000], 0))
    job = JudgeJob(problem, Program(source))
    judged_s = judge.submit(job).result(timeout=120).tests[0].cpu_s
    trace = judge.trace(
        JudgeJob(call_problem("f", ([400_000], 0), time_limit_s=max(0.5, 3 * judged_s)), job.program), 0
    )
    assert trace.result(timeout=120).variables == {"n": "400000", "t": str(399_999 * 200_000), "i": "399999"}


def test_objects_of_the_main_function_end_with_it(script):
    source = "class A:\n    def __del__(self): print('ended')\ndef main():\n    a = A()\n    x = 1\nmain()\nprint('after')\nmain()"
    assert script(source).result == "ended\nafter\nended\n"


# --- What traces do not touch --------------------------------------------------------------------------------------

PROGRAMS = {
    "right": "print(int(input()) + 1)",
    "wrong": "print(int(input()) + 2)",
    "wrong later": "n = int(input())\nprint(2 if n == 1 else 0)",
    "in a function": "def main():\n    n = int(input())\n    print(n + 1)\nmain()",
    "raises": "raise ValueError",
    "too slow": "while True: pass",
    "leaves": "import os; os._exit(0)",
    "does not compile": "def",
    "writes to the channel": "import os\ntry: os.write(3, b'x')\nexcept OSError: print(int(input()) + 1)",
    "counts calls": "import builtins\nprint(int(input()) + 1 if '.call' not in dir(builtins) else 0)",
}


def test_verdicts_are_the_same_with_and_without_traces(stdin_problem):
    problem = stdin_problem(("1\n", "2\n"), ("5\n", "6\n"), time_limit_s=0.5)
    jobs = [JudgeJob(problem, Program(source), name) for name, source in PROGRAMS.items()]
    with LocalJudge(SANDBOX, JUDGE) as plain:
        without = [plain.submit(job).result(timeout=120) for job in jobs]
    with LocalJudge(SANDBOX, JUDGE) as tracing:
        before = [tracing.trace(job, 0) for job in jobs]
        futures = [tracing.submit(job) for job in jobs]
        after = [tracing.trace(job, 0) for job in jobs]
        with_traces = [future.result(timeout=120) for future in futures]
        assert [trace.result(timeout=120) for trace in before] == [trace.result(timeout=120) for trace in after]

    def decided(verdicts: list[Any]) -> list[Any]:
        return [(v.id, v.status, v.reward, v.failing_test, v.fault) for v in verdicts]

    assert decided(with_traces) == decided(without)


def test_a_trace_is_the_same_every_time(judge, stdin_problem):
    source = "def main():\n    x = id(None) > 0\n    y = hash('text')\n    z = ''.join({'a', 'b', 'c', 'd'})\nmain()"
    job = JudgeJob(stdin_problem(("", "")), Program(source))
    first, *others = [judge.trace(job, 0).result(timeout=120) for _ in range(5)]
    assert first.status == "finished"
    assert len(first.variables) == 3
    assert others == [first] * 4


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The programs for which judges that are made in this test open a cell."""
    found: list[bytes] = []

    def counted(config: SandboxConfig) -> Sandbox:
        sandbox = open_sandbox(config)
        whole = sandbox.open

        def open(content: bytes, *others: Any) -> Any:
            found.append(content)
            return whole(content, *others)

        monkeypatch.setattr(sandbox, "open", open)
        return sandbox

    monkeypatch.setattr("autoclave.judge.local.open_sandbox", counted)
    return found


def test_traces_of_one_program_share_a_cell_and_nothing_else(opened: list[bytes], stdin_problem):
    problem = stdin_problem(*((f"{number}\n", "") for number in range(12)))
    source = "import os\nx = int(input())\nif x == 3: os._exit(1)\ny = 'y' in os.environ\nos.environ['y'] = ''\n"
    with LocalJudge(SANDBOX, JUDGE.model_copy(update={"workers": 1})) as busy:
        loop = JudgeJob(stdin_problem(("", ""), time_limit_s=1.0), Program("while True: pass"))
        blocking = busy.submit(loop)
        one, other = JudgeJob(problem, Program(source)), JudgeJob(problem, Program(source + "#"))
        futures = [busy.trace(job, test) for test in range(12) for job in (one, other)]
        blocking.result(timeout=120)
        found = [future.result(timeout=120) for future in futures]
    assert [trace.test for trace in found] == [test for test in range(12) for _ in range(2)]
    assert [trace.values for trace in found] == [
        {} if test == 3 else {"x": test, "y": False} for test in range(12) for _ in range(2)
    ]
    assert len([content for content in opened if content.startswith(b"import os")]) == 4  # 8 runs, and 4, of each


def test_a_trace_that_is_far_over_the_time_limit_is_not_repeated(opened: list[bytes], stdin_problem):
    job = JudgeJob(stdin_problem(("", ""), time_limit_s=1.0), Program("while True: pass"))
    with LocalJudge(SANDBOX, JUDGE) as tracing:
        assert not tracing.trace(job, 0).result(timeout=120).variables
    assert len(opened) == 1


def test_what_a_cell_is_made_of_is_not_used_again_after_a_fault():
    ends: list[type[BaseException] | None] = []

    class Ending:
        compile_error = None

        def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
            ends.append(kind)

    def one_more(shared: SharedCell) -> None:
        shared.of(SimpleNamespace(open=lambda *_: Ending(), limits=SimpleNamespace(first=None)))  # pyright: ignore

    with SharedCell(BrokenSandbox()) as shared:  # pyright: ignore
        one_more(shared)
        shared.abandon(SandboxFault("it died"))
        one_more(shared)
    with contextlib.suppress(ValueError), SharedCell(BrokenSandbox()) as shared:  # pyright: ignore
        one_more(shared)
        raise ValueError
    assert ends == [SandboxFault, None, ValueError]


def test_a_cell_that_dies_takes_none_of_the_other_traces_with_it(monkeypatch: pytest.MonkeyPatch, stdin_problem):
    observe, deaths = traces_module._MainProgram.observe, iter([True])  # pyright: ignore[reportPrivateUsage]

    def dying(style: Any, cell: Any, index: int) -> Any:
        if index == 1 and next(deaths, False):
            cell.close()
            raise SandboxFault("it died")
        return observe(style, cell, index)

    monkeypatch.setattr(traces_module._MainProgram, "observe", dying)  # pyright: ignore[reportPrivateUsage]
    problem = stdin_problem(*((f"{number}\n", "") for number in range(3)))
    with LocalJudge(SANDBOX, JUDGE) as tracing:
        futures = [tracing.trace(JudgeJob(problem, Program("x = int(input())")), test) for test in range(3)]
        assert [future.result(timeout=120).values for future in futures] == [{"x": 0}, {"x": 1}, {"x": 2}]


# --- Requests that cannot be met -----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 1])
def test_a_test_that_is_not_there_is_refused_at_once(judge, stdin_problem, index: int):
    with pytest.raises(InputError, match=f"problem 'p': test {index}: no such test; there are 1"):
        judge.trace(JudgeJob(stdin_problem(("", "")), Program("")), index)


def test_tests_without_a_run_to_look_at_are_refused_at_once(judge):
    problem = Problem("s", CheckTests("check", "f", "def check(c): assert c() == 1", "check(f)"), id="p")
    with pytest.raises(InputError, match=r"problem 'p': tests\.kind = 'check'"):
        judge.trace(JudgeJob(problem, Program("def f(): return 2")), 0)


class BrokenSandbox:
    """A sandbox whose host has failed."""

    level = "sealed"

    def open(self, *_: object) -> object:
        raise SandboxFault("no cell")

    def close(self) -> None:
        pass


def test_a_fault_of_the_host_is_a_fault_and_no_trace(monkeypatch: pytest.MonkeyPatch, stdin_problem):
    monkeypatch.setattr("autoclave.judge.local.open_sandbox", lambda _: BrokenSandbox())
    with LocalJudge(SANDBOX, JUDGE) as broken:
        future = broken.trace(JudgeJob(stdin_problem(("", "")), Program("x = 1")), 0)
        with pytest.raises(JudgeFault, match="no cell"):
            future.result(timeout=120)


def test_closing_cancels_traces_that_wait(stdin_problem):
    with LocalJudge(SANDBOX, JUDGE) as closing:
        futures = [closing.trace(JudgeJob(stdin_problem(("", "")), Program("while True: pass")), 0) for _ in range(8)]
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) >= 6
    with pytest.raises(RuntimeError, match="the judge is closed"):
        closing.trace(JudgeJob(stdin_problem(("", "")), Program("")), 0)


# --- Accounts that lie ---------------------------------------------------------------------------------------------

FRAME = "import os, json\ndef send(x):\n    x = x if type(x) is bytes else json.dumps(x).encode()\n    os.write(3, len(x).to_bytes(4, 'big') + x)\n    os._exit(0)\n"
MALFORMED = {
    "no JSON": "send(b'{')",
    "deep": "send(b'[' * 10**5)",
    "another shape": "send(['variables', 1])",
    "no count": "send({'variables': []})",
    "negative count": "send({'variables': [], 'left_out': -1})",
    "true count": "send({'variables': [], 'left_out': True})",
    "variables are an object": "send({'variables': {'x': 1}, 'left_out': 0})",
    "pair of three": "send({'variables': [['x', 1, 2]], 'left_out': 0})",
    "name is a number": "send({'variables': [[1, 1]], 'left_out': 0})",
    "value is a list": "send({'variables': [['x', [1]]], 'left_out': 0})",
    "value is too long": "send({'variables': [['x', 'x' * 2000]], 'left_out': 0})",
    "value is a huge integer": "send({'variables': [['x', {'$': 'int', 'v': '0x1' + '0' * 10**5}]], 'left_out': 0})",
    "too many": "send({'variables': [['x', 1]] * 1000, 'left_out': 0})",
    "result is no list": "send({'variables': [], 'left_out': 0, 'result': 1})",
    "unknown tag": "send({'variables': [['x', {'$': 'object', 'v': 1}]], 'left_out': 0})",
    "pickle": "import pickle; send(pickle.dumps({'variables': [], 'left_out': 0}))",
}


@pytest.mark.parametrize("trick", MALFORMED)
def test_a_malformed_account_is_no_trace(script, call, trick: str):
    for trace in (
        script(f"{FRAME}x = 1\n{MALFORMED[trick]}"),
        call(f"{FRAME}def f():\n    x = 1\n    {MALFORMED[trick]}"),
    ):
        assert (trace.status, trace.message, trace.variables) == ("no_values", "its account is malformed", {})


NO_VALUES = {
    "endless frame": "import os\nos.write(3, b'\\xff' * 4)\nos._exit(0)",
    "cut frame": "import os\nos.write(3, b'\\0\\0\\0\\x09{')\nos._exit(0)",
    "closed channel": "import os\nx = 1\nos.close(3)",
    "flood": "import os\nwhile True: os.write(3, b'\\xff' * 65536)",
    "kills the tracer": "import os, sys\nsys.setprofile = None\nos._exit(0)",
    "two results": f"{FRAME}send(b'x' * (3 << 20))",
}


@pytest.mark.parametrize("trick", NO_VALUES)
def test_a_program_that_breaks_its_channel_has_no_trace(script, trick: str):
    trace = script(NO_VALUES[trick])
    assert (trace.status, trace.variables) == ("no_values", {})


@pytest.mark.parametrize("lists", [3, [3], [["x", 3]], [["x", ["y" * 1001]]], [["x", [0] * 101]], [["x", []]] * 101])
def test_lists_that_no_runner_tells_are_refused(script, lists):
    source = f"{FRAME}x = 1\nsend({{'variables': [], 'left_out': 0, 'lists': {lists!r}}})"
    trace = script(source)
    assert (trace.status, trace.message) == ("no_values", "its account is malformed")


def test_names_that_the_program_does_not_have_are_dropped(script):
    sent = [["x", 1], ["secret", 2], ["x.y", 3], ["x.x", 4], ["", 5], ["x.x.x", 6], ["send.x", 7], ["__class__", 8]]
    source = f"{FRAME}x = 1\nsend({{'variables': json.loads(input()), 'left_out': 0}})"
    assert list(script(source, stdin=json.dumps(sent)).variables) == ["x", "x.x", "send.x"]


PATCHES = {
    "setprofile": "import sys\nsys.setprofile = sys.settrace = lambda *_: None",
    "own profile": "import sys\nsys.setprofile(lambda *_: None)",
    "own tracer": "import sys\nsys.settrace(lambda *_: None)",
    "getframe": "import sys\nsys._getframe = lambda *_: None",
    "locals": "import builtins\nbuiltins.locals = builtins.globals = builtins.vars = lambda *_: {'x': 9}",
    "ast": "import ast, symtable\nast.parse = symtable.symtable = None",
    "a name of locals": "locals()['z'] = 9\nglobals()['z'] = 9",
}


@pytest.mark.parametrize("patch", PATCHES)
def test_patched_tools_do_not_change_the_values(script, call, patch: str):
    body = "def main():\n    x = 1\n    x += 1\nmain()"
    assert script(f"{PATCHES[patch]}\n{body}").variables["main.x"] == "2"
    assert call(f"{PATCHES[patch]}\n{body.removesuffix('main()')}", of="main").variables == {"x": "2"}


LIES = {
    "type": "import builtins\nbuiltins.type = lambda x: int",
    "isinstance": "import builtins\nbuiltins.isinstance = lambda *_: True",
    "json": 'import json\njson.dumps = lambda *_, **__: \'{"variables": [["x", 7]], "left_out": 0}\'',
    "os.write": "import os\nos.write = lambda *_: 10**9",
    "len": "import builtins\nbuiltins.len = lambda _: 3",
    "threads": "import threading\nthreading._shutdown = None",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_forged_trace_is_a_trace_of_the_forger_at_worst(judge, script, stdin_problem, lie: str):
    before = script("x = 1").variables
    forged = script(f"{LIES[lie]}\nclass A: pass\nx = A()")
    assert forged.status in ("finished", "raised", "no_values")
    assert set(forged.variables) <= {"x"}
    assert script("x = 1").variables == before == {"x": "1"}
    job = JudgeJob(stdin_problem(("", "never this")), Program(f"{LIES[lie]}\nx = 1"))
    assert judge.submit(job).result(timeout=120).reward == 0.0


# --- Any program ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcd")
CONSTANTS = st.sampled_from(["0", "1", "-3", "2.5", "'s'", "''", "True", "None", "float('nan')", "[1]"])
EXPRESSIONS = st.one_of(
    CONSTANTS,
    NAMES,
    st.builds("{} + {}".format, NAMES, CONSTANTS),
    st.builds("{} - {}".format, NAMES, NAMES),
    st.builds("{} < {}".format, NAMES, NAMES),
    st.builds("str({})".format, CONSTANTS),
    st.builds("[{0} for {0} in range(3)]".format, NAMES),
    st.builds("(lambda {0}: {0})({1})".format, NAMES, NAMES),
    st.builds("({} := {})".format, NAMES, CONSTANTS),
)
SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, EXPRESSIONS),
    st.builds("{0} = {1} = {2}".format, NAMES, NAMES, EXPRESSIONS),
    st.builds("{} += {}".format, NAMES, CONSTANTS),
    st.builds("del {}".format, NAMES),
)


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for text in lines for line in text.splitlines())


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(_indented)
    return st.one_of(
        st.builds("for {} in range({}):\n{}".format, NAMES, st.integers(0, 3), bodies),
        st.builds("if {}:\n{}\nelse:\n{}".format, EXPRESSIONS, bodies, bodies),
        st.builds("try:\n{}\nexcept Exception as {}:\n{}".format, bodies, NAMES, bodies),
    )


BODIES = st.lists(st.recursive(SIMPLE, _compound, max_leaves=5), min_size=1, max_size=6)


def _final(source: str) -> tuple[dict[str, str], bool]:
    """Literals of the primitive values that `source` leaves in `seen`, and whether it ended without an exception."""
    seen: dict[str, Any] = {}
    try:
        exec(source, {"seen": seen})
        has_ended = True
    except Exception:  # noqa: BLE001  whatever a generated program raises
        has_ended = False
    return {
        name: repr(seen[name]) for name in seen if type(seen[name]) in (int, float, str, bool, type(None))
    }, has_ended


@settings(max_examples=60)
@given(body=BODIES)
def test_the_trace_of_any_main_program_is_what_python_leaves(body: list[str], judge):
    source = "\n".join(body)
    expected = _final(
        f"try:\n{_indented(body)}\nfinally:\n    seen.update({{n: v for n, v in globals().items() if n in 'abcd'}})"
    )
    problem = Problem.from_json(
        {
            "format": "autoclave-problem/1",
            "statement": "",
            "profile": "plain",
            "tests": {"kind": "stdin", "cases": [{"input": "", "output": "-"}]},
        }
    )
    trace = judge.trace(JudgeJob(problem, Program(source)), 0).result(timeout=120)
    assert (trace.variables, trace.status == "finished") == expected


@settings(max_examples=60)
@given(body=BODIES)
def test_the_trace_of_any_call_is_what_python_leaves(body: list[str], judge):
    source = f"def f():\n{_indented(body)}"
    expected = _final(
        f"def f():\n    try:\n{_indented([_indented(body)])}\n    finally:\n        seen.update(locals())\nf()"
    )
    problem = Problem.from_json(
        {
            "format": "autoclave-problem/1",
            "statement": "",
            "tests": {"kind": "call", "entry_point": "f", "cases": [{"arguments": [], "output": "-"}]},
        }
    )
    trace = judge.trace(JudgeJob(problem, Program(source)), 0).result(timeout=120)
    assert (trace.variables, trace.status == "finished") == expected


def test_programs_of_a_profile_of_ones_own_are_traced():
    profiles = {"mine": ProfileConfig(preamble="import math\nTAU = 2 * math.pi")}
    problem = Problem("", StdinTests("stdin", [StdinCase("2\n", "12\n")]), profile="mine")
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=1, profiles=profiles)) as judge:
        found = judge.trace(JudgeJob(problem, Program("x = int(int(input()) * TAU)\nprint(x)")), 0).result(60)
    assert found.variables == {"x": "12"}


# --- What a program sees ---------------------------------------------------------------------------------------------

STACK = "import inspect\ndef g():\n    return [(f.function, f.filename, f.code_context, f.frame.f_globals['__name__']) for f in inspect.stack()]\n"


def test_a_traced_main_program_has_the_frames_of_any_other_run(judge, script, stdin_problem):
    source = STACK + "def main(n, *, k=0):\n    frames = str(g())\n    print(frames)\nmain(1, k=2)"
    trace = script(source)
    assert "'main'" in trace.result
    assert trace.variables["main.k"] == "2"
    verdict = judge.submit(JudgeJob(stdin_problem(("", trace.result)), Program(source), "x")).result(timeout=120)
    assert verdict.is_accepted, trace.result


def test_a_traced_call_has_the_frames_of_any_other_run(judge, call, call_problem):
    source = STACK + "def f(n):\n    return [[name, file, module] for name, file, _, module in g()]"
    names = ast.literal_eval(call(source, 1).result)
    assert [name for name, *_ in names[:3]] == ["g", "f", "_call"]
    verdict = judge.submit(JudgeJob(call_problem("f", ([1], names)), Program(source), "x")).result(timeout=120)
    assert verdict.is_accepted, names


def test_a_call_that_raises_and_is_caught_has_the_values_of_its_end(script):
    source = "def f(n):\n    m = n + 1\n    return m / n\ntry:\n    f(0)\nexcept ZeroDivisionError: pass"
    assert script(source).variables == {"f.n": "0", "f.m": "1"}


def test_arguments_are_evaluated_before_the_call_is_looked_at(script):
    source = "def f(n=0, k=0, **rest):\n    own = n + k\n    return own\nprint(f(f(1), k=f(2), **{'z': f(3)}))"
    assert script(source).variables == {"f.n": "1", "f.k": "2", "f.own": "3"}
