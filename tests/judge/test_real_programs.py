"""Real problems with real solutions; the data lie in the folder that AUTOCLAVE_DATA names."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle  # noqa: TID251  the format of the data set
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import CallCase, CallTests, IsolationError, Problem, Program, StdinCase, StdinTests
from autoclave.judge import JudgeJob, LocalJudge, stream

DATA = os.environ.get("AUTOCLAVE_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="AUTOCLAVE_DATA is not set")


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    """With the limits that users have."""
    try:
        opened = LocalJudge()
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def records(name: str) -> list[dict[str, Any]]:
    path = Path(DATA) / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "\n".join(value)


def apps_problem(record: dict[str, Any]) -> tuple[Problem, list[str]]:
    cases = json.loads(record["files"]["input_output.json"])
    pairs = list(zip(cases["inputs"], cases["outputs"], strict=True))
    name = cases.get("fn_name")
    if name:
        # A result is wrapped in a list of one, except where the value itself is stored.
        tests = CallTests(
            "call", name, [CallCase(args, out[0] if isinstance(out, list) else out) for args, out in pairs]
        )
    else:
        tests = StdinTests("stdin", [StdinCase(text(given), text(expected)) for given, expected in pairs])
    return Problem("", tests, id=record["problem"]), json.loads(record["files"]["solutions.json"])


def test_98_of_101_solutions_of_apps_pass_and_the_broken_ones_do_not(judge):
    jobs: list[JudgeJob] = []
    for record in records("apps_train_5_ondisk.jsonl.gz"):
        problem, solutions = apps_problem(record)
        jobs += [JudgeJob(problem, Program(source), f"{problem.id}#{i}") for i, source in enumerate(solutions)]
    verdicts = {job.id: verdict for job, verdict in stream(judge, jobs)}
    failed = {name.lstrip("0"): verdict.status for name, verdict in verdicts.items() if not verdict.is_accepted}
    assert len(verdicts) == 101
    assert failed == {"2287#2": "compile_error", "2287#4": "compile_error", "2287#9": "compile_error"}


def test_programs_graded_true_by_livecodebench_pass_the_samples(judge):
    jobs: list[JudgeJob] = []
    graded: list[bool] = []
    for record in records("lcb_stdin_samples_o1mini.jsonl.gz"):
        cases = [StdinCase(case["input"], case["output"]) for case in record["sample_tests"]]
        id = record["question_id"]
        limit_s = 12.0 if id == "abc328_e" else None  # its program takes more than 5 of the usual 6 s
        jobs.append(
            JudgeJob(Problem("", StdinTests("stdin", cases), id=id, time_limit_s=limit_s), Program(record["code"]))
        )
        graded.append(record["graded"])
    accepted = [verdict.is_accepted for _, verdict in stream(judge, jobs)]
    counts = Counter(zip(graded, accepted, strict=True))
    assert counts == {(True, True): 94, (False, True): 9, (False, False): 39}


def private_cases(record: dict[str, Any]) -> list[dict[str, str]]:
    """The private tests: JSON text in a pickle of one string, read by a loader that knows no class."""

    class Loader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise AssertionError("a string needs no class")

    packed = zlib.decompress(base64.b64decode(record["private_test_cases"]))
    return json.loads(Loader(io.BytesIO(packed)).load())


def livecodebench_problem(record: dict[str, Any]) -> Problem:
    cases = json.loads(record["public_test_cases"]) + private_cases(record)
    if cases[0]["testtype"] == "stdin":
        tests = StdinTests("stdin", [StdinCase(case["input"], case["output"]) for case in cases])
        return Problem("", tests, id=record["question_id"])
    name = json.loads(record["metadata"])["func_name"]
    calls = [
        CallCase([json.loads(line) for line in case["input"].split("\n")], json.loads(case["output"])) for case in cases
    ]
    return Problem("", CallTests("call", f"Solution.{name}", calls), id=record["question_id"])


def test_programs_graded_true_by_livecodebench_pass_all_tests_of_three_problems(judge):
    problems = {r["question_id"]: livecodebench_problem(r) for r in records("lcb_codegen_samples.jsonl.gz")}
    programs = [r for r in records("lcb_eval_all_o1mini.jsonl.gz") if r["question_id"] in problems]
    jobs = [JudgeJob(problems[r["question_id"]], Program(r["code_list"][0])) for r in programs]
    verdicts = [verdict for _, verdict in stream(judge, jobs)]
    assert {kind for p in problems.values() for kind in [p.tests.kind]} == {"stdin", "call"}
    assert [verdict.status for verdict in verdicts] == ["accepted"] * 3
