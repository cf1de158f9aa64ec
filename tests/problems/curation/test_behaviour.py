"""Solutions that pass each other's tests show duplicates; faults of the judge do not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from autoclave.config.curation import DeduplicationConfig
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import CallCase, CallTests, Fault, IsolationError, Problem, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob, LocalJudge, stream
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.comparing import BehaviourReport, compare_behaviour
from autoclave.problems.curation.deduplication import find_duplicates

CONFIG = DeduplicationConfig()
SUM = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def stdin(row: str, statement: str, solution: str, *cases: tuple[str, str]) -> ProblemCandidate:
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases])
    return ProblemCandidate(Problem(id=row, statement=statement, tests=tests, solutions=[solution]), Origin("a", row))


def call(row: str, statement: str, solution: str, entry_point: str, *cases: tuple[list[Any], Any]) -> ProblemCandidate:
    tests = CallTests("call", entry_point, [CallCase(*case) for case in cases])
    return ProblemCandidate(Problem(id=row, statement=statement, tests=tests, solutions=[solution]), Origin("a", row))


APPLES = stdin("1", "How many apples are in both baskets?", SUM, ("1 2", "3"), ("4 5", "9"), ("10 1", "11"))
TRIPS = stdin("2", "Length of a trip there and onwards.", SUM, ("7 8", "15"), ("2 2", "4"), ("0 6", "6"))
PRODUCT = "a, b = map(int, input().split())\nprint(a * b)"
AREA = stdin("3", "Area of a field.", PRODUCT, ("7 8", "56"), ("3 4", "12"), ("5 5", "25"))
PARITY = stdin("4", "Is it even?", SUM, ("1 3", "YES"), ("2 3", "NO"))


def compared(
    judge: Any, folder: Path, *candidates: ProblemCandidate, config: DeduplicationConfig = CONFIG
) -> BehaviourReport:
    return compare_behaviour(
        find_duplicates(candidates, config, [], folder),
        candidates,
        lambda jobs: (verdict for _, verdict in stream(judge, jobs)),
        config,
    )


def rows(report: BehaviourReport) -> list[tuple[str, str, str]]:
    return [(each.dropped.id, each.kept.id, each.reason.value) for each in report.duplicates]


def test_solutions_that_pass_each_others_tests_make_one_problem(judge: LocalJudge, tmp_path: Path):
    report = compared(judge, tmp_path, APPLES, TRIPS, AREA)
    assert rows(report) == [("2", "1", "behaviour")]
    assert (report.num_pairs, report.inconclusive) == (2, [])  # trips and area disagree on an input: not run


def test_tests_with_few_different_outputs_are_not_run(judge: LocalJudge, tmp_path: Path):
    report = compared(judge, tmp_path, APPLES, PARITY, stdin("5", "Odd?", SUM, ("9 3", "YES"), ("2 9", "NO")))
    assert (rows(report), report.num_pairs) == ([], 0)
    assert report.num_left_out > 0


def test_functions_are_called_by_the_name_that_the_tests_use(judge: LocalJudge, tmp_path: Path):
    add = call("1", "Add them.", "def add(a, b):\n    return a + b", "add", ([1, 2], 3), ([4, 5], 9), ([0, 1], 1))
    total = call("2", "Sum up.", "def total(x, y):\n    return y + x", "total", ([7, 1], 8), ([2, 2], 4), ([3, 3], 6))
    assert rows(compared(judge, tmp_path, add, total)) == [("2", "1", "behaviour")]


def test_methods_are_called_by_the_name_that_the_tests_use(judge: LocalJudge, tmp_path: Path):
    source = "class Solution:\n    def {}(self, a, b):\n        return a + b"
    add = call("1", "Add.", source.format("add"), "Solution.add", ([1, 2], 3), ([4, 5], 9), ([0, 1], 1))
    total = call("2", "Sum.", source.format("total"), "Solution.total", ([7, 1], 8), ([2, 2], 4), ([3, 3], 6))
    assert rows(compared(judge, tmp_path, add, total)) == [("2", "1", "behaviour")]


def test_of_three_duplicates_one_is_kept(judge: LocalJudge, tmp_path: Path):
    third = stdin("5", "Coins in two pockets.", SUM, ("9 9", "18"), ("1 1", "2"), ("3 0", "3"))
    assert {row[:2] for row in rows(compared(judge, tmp_path, APPLES, TRIPS, third))} == {("2", "1"), ("5", "1")}


def test_pairs_beyond_the_limit_are_counted(judge: LocalJudge, tmp_path: Path):
    report = compared(judge, tmp_path, APPLES, TRIPS, config=DeduplicationConfig(judged_pairs=0))
    assert (rows(report), report.num_pairs, report.num_left_out) == ([], 0, 1)


class FaultyJudge:
    """Has no verdict on anything."""

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        done: Future[Verdict] = Future()
        done.set_result(Verdict(job.problem.id, job.id, None, None, None, fault=Fault("sandbox", "cell died")))
        return done


def test_a_fault_of_the_judge_is_reported_and_drops_nothing(tmp_path: Path):
    report = compared(FaultyJudge(), tmp_path, APPLES, TRIPS)
    assert rows(report) == []
    assert [(each.better.id, each.other.id) for each, _ in report.inconclusive] == [("1", "2")]
    assert "cell died" in report.inconclusive[0][1]


def test_passing_the_tests_of_the_other_one_way_is_not_enough(judge: LocalJudge, tmp_path: Path):
    whole = "a, b = map(int, input().split())\nprint(a + b if a < 100 else 0)"
    narrow = stdin("6", "Add up to a hundred.", whole, ("3 9", "12"), ("100 1", "0"), ("2 9", "11"))
    report = compared(judge, tmp_path, APPLES, narrow)
    assert (rows(report), report.num_pairs) == ([], 1)
