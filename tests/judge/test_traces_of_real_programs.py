"""Final values of reference solutions and of programs that models wrote, against a plain process that traces them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from autoclave.core import CallCase, CallTests, IsolationError, Problem, Program, StdinCase, StdinTests, Trace
from autoclave.judge import JudgeJob, LocalJudge
from tests.judge import plain_tracer
from tests.judge.test_real_programs import apps_problem
from tests.real_problems import NEEDS_DATA, records

pytestmark = [NEEDS_DATA, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Run:
    """A program and a test of its problem."""

    problem: Problem
    program: str
    test: int = 0


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def apps() -> list[Run]:
    """Every solution, on the first test and the last."""
    found: list[Run] = []
    for record in records("apps_train_5_ondisk"):
        problem, solutions = apps_problem(record)
        last = len(problem.tests.cases) - 1
        found += [Run(problem, source, test) for source in solutions for test in {0, min(last, 3)}]
    return found


def livecodebench() -> list[Run]:
    """What o1-mini wrote, right and wrong."""
    found: list[Run] = []
    for record in records("lcb_stdin_samples_o1mini"):
        cases = [StdinCase(case["input"], case["output"]) for case in record["sample_tests"]]
        found.append(Run(Problem("", StdinTests("stdin", cases), id=record["question_id"]), record["code"]))
    return found


def human_eval() -> list[Run]:
    """What GPT-3.5 wrote, right and wrong, on the tests that it was shown."""
    found: list[Run] = []
    for record in records("model_programs_humaneval_gpt35"):
        name = record["entry_point"]
        imports = "from typing import *\nimport math\n"
        given = record["given_tests"]
        for text in ast.literal_eval(given) if isinstance(given, str) else given:
            if arguments := literal_arguments(text, name):
                tests = CallTests("call", name, [CallCase(arguments, None)], imports)
                found.append(Run(Problem("", tests, id=record["task_id"]), imports + record["solution"]))
                break
    return found


def literal_arguments(text: str, name: str) -> list[Any] | None:
    """Those of the first call of a function in an assert, if they are plain data as JSON has it."""
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        call = next(node for node in calls if isinstance(node.func, ast.Name) and node.func.id == name)
        arguments = [ast.literal_eval(argument) for argument in call.args]
        return arguments if json.loads(json.dumps(arguments)) == arguments and not call.keywords else None
    except (SyntaxError, StopIteration, ValueError, TypeError):
        return None


def seen_by_a_plain_process(runs: Sequence[Run]) -> list[dict[str, Any]]:
    lines: list[str] = []
    for run in runs:
        tests = run.problem.tests
        case = tests.cases[run.test]
        if isinstance(tests, CallTests):
            task = {"entry": tests.entry_point, "arguments": case.arguments, "input": ""}
        else:
            task = {"entry": "", "arguments": [], "input": case.input}
        lines.append(json.dumps({"program": run.program, **task}))
    done = subprocess.run(
        [sys.executable, plain_tracer.__file__],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={"PYTHONHASHSEED": "0", "PYTHONPATH": ""},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def disagreement(run: Run, trace: Trace, seen: dict[str, Any]) -> str:
    """Where a trace of a run that ended says something else than a plain process saw; empty if nowhere."""
    names = set(trace.variables)
    if isinstance(run.problem.tests, CallTests):
        expected = seen["frames"].get(run.problem.tests.entry_point.rpartition(".")[2], {})
        missing = set(expected) - names
    else:
        main = {name.partition(".")[0] for name in names if "." in name}
        inner = {f"{f}.{name}": text for f in main for name, text in seen["frames"].get(f, {}).items()}
        expected = seen["globals"] | inner
        missing = {name for name in expected if name not in names and not _is_imported(name, run.program)}
    wrong = {name: (text, expected.get(name)) for name, text in trace.variables.items() if expected.get(name) != text}
    return f"wrong: {wrong}, missing: {missing}" if wrong or missing else ""


def _is_imported(name: str, program: str) -> bool:
    """The program gets the name by an import, maybe of everything."""
    imports = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return any(alias.name in (name, "*") or alias.asname == name for node in imports for alias in node.names)


@pytest.mark.parametrize(("source", "at_least"), [(apps, 110), (livecodebench, 100), (human_eval, 100)])
def test_traces_tell_what_python_leaves(judge, source, at_least: int):
    runs = source()
    futures = [judge.trace(JudgeJob(run.problem, Program(run.program)), run.test) for run in runs]
    traces = [future.result(timeout=200) for future in futures]
    seen = seen_by_a_plain_process(runs)
    found = [
        (run.problem.id, found)
        for run, trace, each in zip(runs, traces, seen, strict=True)
        if trace.status == "finished" and (found := disagreement(run, trace, each))
    ]
    statuses = Counter(
        (trace.status.value if trace.status else "fault", each["ended"])
        for trace, each in zip(traces, seen, strict=True)
    )
    assert not found, f"{len(found)} of {len(runs)}: {found[:5]}"
    assert statuses["finished", True] >= at_least, statuses
    assert statuses["finished", False] == 0, statuses
