"""Weak tests are found by programs that should fail them."""

from __future__ import annotations

import ast
from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import CallCase, CallTests, CheckTests, Verdict
from autoclave.judge import Judge, JudgeJob
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.lazy_programs import lazy_programs
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache
from autoclave.problems.curation.stage import Dropped
from autoclave.problems.curation.strength import Strength, mutants

from .conftest import ADD, CASES, candidate

LARGER = "a, b = map(int, input().split())\nif a < b:\n    print(b)\nelse:\n    print(a)"


def decided(programs: CandidatePrograms, given: ProblemCandidate, minimum: float = 0.5) -> ProblemCandidate | Dropped:
    (found,) = Strength(programs, 12, minimum).run([given])
    return found


@pytest.mark.parametrize(
    ("cases", "passes"),
    [
        ((("1 2\n", "3\n"),), "prints the answer of the first test"),
        ((("0 0\n", "0\n"), ("1 -1\n", "0\n")), "prints the answer of the first test"),
        ((("", ""),), "prints nothing"),
        ((("7\n", "7\n"), ("8\n", "8\n")), "repeats its input"),
    ],
)
def test_a_problem_that_a_lazy_program_passes_is_dropped(programs: CandidatePrograms, cases, passes):
    found = decided(programs, candidate("weak", ADD, cases=cases))
    assert isinstance(found, Dropped)
    assert found.reason == "trivial_program_passes"
    assert passes in found.detail


@pytest.mark.parametrize(
    ("facts", "limit_s"), [({"solution_seconds": 0.25}, 1.0), ({"solution_seconds": 2.0}, 8.0), ({}, 5.0)]
)
def test_an_endless_mutant_has_a_multiple_of_the_time_of_a_solution(
    judge: Judge, cache: VerdictCache, monkeypatch: pytest.MonkeyPatch, facts, limit_s
):
    limits = list[float | None]()
    submit = judge.submit

    def recorded(job: JudgeJob) -> Future[Verdict]:
        limits.append(job.problem.time_limit_s)
        return submit(job)

    monkeypatch.setattr(judge, "submit", recorded)
    verified = replace(candidate("loops", LARGER, time_limit_s=5.0), facts=facts)
    list(Strength(CandidatePrograms(judge, cache, 16), 12, 0.5).run([verified]))
    assert set(limits) == {limit_s}


@pytest.mark.parametrize("entry_point", ["f", "Solution.f"])
def test_lazy_programs_fail_functions_and_checks(programs: CandidatePrograms, entry_point: str):
    def calls(*pairs):
        return CallTests("call", entry_point, [CallCase([given], output) for given, output in pairs])

    echo = candidate("echo", tests=calls(([1], [1]), ([2], [2])))
    constant = candidate("constant", tests=calls((1, "a"), (2, "a")))
    check = CheckTests("check", entry_point, "def check(f):\n    assert not f(3)\n    assert not f(4)", "check(c)")
    check = candidate("check", tests=CheckTests(check.kind, entry_point, check.source, "check(candidate)"))
    strong = candidate("strong", tests=calls((1, 2), (2, 3), (3, 4)))
    assert {
        one.problem.id: getattr(decided(programs, one), "detail", "kept") for one in (echo, constant, check, strong)
    } == {
        "echo": "a program passes that returns its first argument",
        "constant": "a program passes that returns the answer of the first test",
        "check": "a program passes that returns None",
        "strong": "kept",
    }


def test_the_share_of_mutants_that_fail_is_recorded_and_has_a_minimum(programs: CandidatePrograms):
    strong = decided(
        programs,
        candidate("strong", LARGER, cases=tuple((given, f"{max(map(int, given.split()))}\n") for given, _ in CASES)),
    )
    assert isinstance(strong, ProblemCandidate)
    assert strong.facts["killed_share"] >= 0.5
    assert strong.facts["mutants"] >= 3
    sorted_inputs = (("1 2\n", "2\n"), ("0 3\n", "3\n"), ("5 7\n", "7\n"))  # the other branch is never run
    weak = decided(programs, candidate("weak", LARGER, cases=sorted_inputs), 0.95)
    assert isinstance(weak, Dropped)
    assert weak.reason == "mutants_pass"


def test_mutants_differ_in_one_token_outside_strings_and_comments():
    source = "x = '1 + 1'  # 1 + 1\ny = 1 + x.count('+')\n"
    found = mutants(source, "python", 10, 0)
    assert set(found) == {
        source.replace("y = 1 +", "y = 2 +"),
        source.replace("1 + x", "1 - x"),
        source.replace("y = 1 + x.count('+')", "pass"),
        source.replace("x = '1 + 1'", "pass"),
    }


def test_conditions_are_negated_and_statements_left_out_wherever_they_stand():
    source = "é = 'é'; n = 1\r\nif é and n:\r\n    n = (2,\r\n         3)\r\nprint(n)\r\n"
    found = mutants(source, "python", 100, 0)
    assert source.replace("é and n", "(not (é and n))") in found
    assert source.replace("n = 1", "pass") in found
    assert source.replace("n = (2,\r\n         3)", "pass") in found


@given(st.integers(0, 5), st.integers(0, 1000))
def test_mutants_are_the_same_for_the_same_seed_and_can_be_compiled(count: int, seed: int):
    found = mutants(LARGER, "python", count, seed)
    assert found == mutants(LARGER, "python", count, seed)
    assert len(set(found)) == len(found) <= count
    for mutant in found:
        ast.parse(mutant)
        assert mutant != LARGER


@pytest.mark.parametrize("source", ["", "print(", "'''", "\x00", "x = 1\r\ny = 2\r\n", "\tif:\n"])
def test_sources_that_cannot_be_read_have_few_mutants_or_none(source: str):
    assert len(mutants(source, "python", 3, 0)) <= 3


def test_lazy_programs_do_not_print_answers_beyond_the_limit():
    long = candidate("long", ADD, cases=(("1\n", "9" * 20_000),))
    assert set(lazy_programs(long.problem)) == {"prints nothing", "repeats its input"}
