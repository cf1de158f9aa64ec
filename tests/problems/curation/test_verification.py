"""Rules for official solutions, in the sandbox."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoclave.core import AnswerTests, CheckTests, Fault, HostError, IncompleteError, InputError, Problem, Verdict
from autoclave.problems.candidate import Origin, ProblemCandidate
from autoclave.problems.curation.programs import CandidatePrograms, VerdictCache
from autoclave.problems.curation.stage import Dropped, Stage
from autoclave.problems.curation.verification import Agreement, Flakiness, Verification

from .conftest import ADD, candidate

WRONG = "print(sum(map(int, input().split())) % 30)"
COIN = "import random\nprint(sum(map(int, input().split())) if random.random() < 0.5 else 'tails')"
REPEATS = 40  # a coin does not fall on the same side as often, in as many runs of this test as anyone will see
PAIR = "Find two numbers whose sum is given. If there are several answers, print any of them."
PAIRS = (("3\n", "1 2\n"), ("5\n", "1 4\n"), ("9\n", "1 8\n"))


def results(stage: Stage, *candidates: ProblemCandidate) -> dict[str, str]:
    """By id, `kept`, or the reason."""
    found = list(stage.run(candidates))
    return {
        (one.id if isinstance(one, Dropped) else one.problem.id): one.reason if isinstance(one, Dropped) else "kept"
        for one in found
    }


def kept(stage: Stage, given: ProblemCandidate) -> ProblemCandidate:
    (found,) = stage.run([given])
    assert isinstance(found, ProblemCandidate)
    return found


def test_every_solution_must_pass_every_test(programs: CandidatePrograms):
    stage = Verification(programs, "all", frozenset())
    assert results(
        stage,
        candidate("right", ADD, ADD + "\n"),
        candidate("one-wrong", ADD, WRONG),
        candidate("all-wrong", WRONG, "1/0"),
        candidate("none"),
    ) == {
        "right": "kept",
        "one-wrong": "solution_fails",
        "all-wrong": "all_solutions_fail",
        "none": "no_solutions",
    }


def test_with_the_rule_any_failing_solutions_are_dropped(programs: CandidatePrograms):
    stage = Verification(programs, "any", frozenset())
    left = kept(stage, candidate("mixed", WRONG, ADD, "while True: pass"))
    assert left.problem.solutions == [ADD]
    assert (left.facts["solutions"], left.facts["solutions_dropped"]) == (1, 2)
    assert results(stage, candidate("wrong", WRONG)) == {"wrong": "all_solutions_fail"}


def test_the_message_of_a_failure_does_not_show_the_answer(programs: CandidatePrograms):
    (dropped,) = Verification(programs, "all", frozenset()).run([candidate("wrong", ADD, WRONG)])
    assert isinstance(dropped, Dropped)
    assert "1 of 2 solutions fail; solution 1: wrong_answer on test 4" in dropped.detail


def test_missing_packages_are_counted_with_a_fix(programs: CandidatePrograms):
    stage = Verification(programs, "all", frozenset())
    missing = [
        candidate(f"{name}-{n}", f"import {name}\n{ADD}") for name, n in (("numpy", 0), ("numpy", 1), ("nowhere", 0))
    ]
    assert set(results(stage, candidate("right", ADD), candidate("wrong", WRONG), *missing).values()) == {
        "kept",
        "all_solutions_fail",
    }
    assert stage.notes == [
        "2 problems were dropped because solutions import numpy. Fix: sources[].profile=lcb_numpy",
        "1 problems were dropped because solutions import nowhere. Fix: sources[].profile=mine and "
        "judge.profiles={mine: {packages: [nowhere]}} after pip install nowhere into the environment of autoclave",
    ]
    with_numpy = replace(missing[0], problem=replace(missing[0].problem, profile="lcb_numpy"))
    assert (results(stage, with_numpy), stage.notes) == ({"numpy-0": "kept"}, [])


def test_some_sources_need_no_solutions_and_answers_no_program(programs: CandidatePrograms):
    stage = Verification(programs, "all", frozenset({"made"}))
    answer = ProblemCandidate(Problem("1 + 1?", AnswerTests("answer", "2", "math"), id="answer"), Origin("maths", "1"))
    assert results(stage, candidate("none"), answer) == {"none": "kept", "answer": "kept"}


def test_a_solution_that_ends_before_its_tests_is_no_solution(programs: CandidatePrograms):
    tests = CheckTests("check", "f", "def check(f):\n    assert f(1) == 2\n    assert f(2) == 3", "check(f)")
    early = "import os\nos._exit(0)\ndef f(x): return x"
    late = "import sys\ndef f(x): sys.exit(0)"
    stage = Verification(programs, "all", frozenset())
    right = "def f(x): return x + 1"
    given = [
        candidate(name, source, tests=tests) for name, source in (("early", early), ("late", late), ("right", right))
    ]
    assert results(stage, *given) == {"early": "all_solutions_fail", "late": "all_solutions_fail", "right": "kept"}


def test_problems_that_cannot_be_judged_are_dropped(programs: CandidatePrograms):
    stage = Verification(programs, "all", frozenset())
    given = [candidate("a", ADD), candidate("odd", ADD, profile="no-such-profile"), candidate("b", ADD)]
    assert results(stage, *given) == {"a": "kept", "odd": "not_judgeable", "b": "kept"}


def test_solutions_that_pass_sometimes_are_found(programs: CandidatePrograms):
    stage = Flakiness(programs, "all", REPEATS)
    luck = candidate("luck", COIN, cases=(("1 2\n", "3\n"),))
    assert results(stage, candidate("steady", ADD), luck) == {"steady": "kept", "luck": "flaky"}
    both = candidate("both", COIN, ADD, cases=(("1 2\n", "3\n"),))
    assert kept(Flakiness(programs, "any", REPEATS), both).problem.solutions == [ADD]


@pytest.mark.parametrize(
    ("statement", "solutions", "expected"),
    [
        (PAIR, ("n = int(input())\nprint(1, n - 1)", "n = int(input())\nprint(n - 1, 1)"), "special_judge"),
        ("Find two numbers.", ("n = int(input())\nprint(1, n - 1)", "n = int(input())\nprint(n - 1, 1)"), "kept"),
        (
            "Find two numbers.",
            ("n = int(input())\nprint(1, n - 1)", "n = int(input())\nprint(n - 1, 1)", "n = int(input())\nprint(0, n)"),
            "special_judge",
        ),
        (PAIR, ("n = int(input())\nprint(1, n - 1)", "print(1)\n1/0"), "kept"),
    ],
)
def test_problems_with_several_right_answers_are_dropped(
    programs: CandidatePrograms, statement: str, solutions: tuple[str, ...], expected: str
):
    given = candidate("pair", *solutions, cases=PAIRS, statement=statement)
    assert results(Agreement(programs, 0.3), given) == {"pair": expected}


def test_cached_verdicts_are_not_judged_again(judge, tmp_path):
    given = [candidate("right", ADD), candidate("wrong", WRONG)]
    counts = []
    for settings in ({}, {}, {"other": 1}):
        with VerdictCache(tmp_path / "cache.sqlite", settings) as cache:
            list(Verification(CandidatePrograms(judge, cache, 4), "all", frozenset()).run(given))
            counts.append((cache.num_found, cache.num_kept))
    assert counts == [(0, 2), (2, 0), (0, 2)]


def test_a_cache_that_cannot_be_used_is_named(tmp_path):
    path = tmp_path / "verdicts.sqlite"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(InputError, match="verdicts cannot be kept there"):
        VerdictCache(path, {})


def test_a_fault_leaves_candidates_for_the_next_run(judge, tmp_path, monkeypatch):
    submit = judge.submit

    def failing(job):
        future = submit(job)
        if "wrong" in job.program.source:
            future = type(future)()
            future.set_result(Verdict.none(Fault("cell", "gone")))
        return future

    given = [candidate("a", ADD), candidate("b", ADD + "  # wrong"), candidate("c", ADD + "  # right")]
    with VerdictCache(tmp_path / "cache.sqlite", {}) as cache:
        stage = Verification(CandidatePrograms(judge, cache, 4), "all", frozenset())
        monkeypatch.setattr(judge, "submit", failing)
        decided = []
        with pytest.raises(IncompleteError, match=r"1 problems have no verdict.*'b'"):
            decided.extend(one.problem.id for one in stage.run(given))
        monkeypatch.undo()
        assert results(stage, *given) == dict.fromkeys("abc", "kept")
        assert cache.num_found == 2


def test_a_problem_whose_own_tests_are_broken_is_dropped_and_the_others_are_decided(programs: CandidatePrograms):
    tests = CheckTests("check", "f", "def check(f):\n    pass", "check(f)")  # it never asks the program
    stage = Verification(programs, "all", frozenset())
    given = [candidate("a", ADD), candidate("broken", "def f(x): return x", tests=tests), candidate("b", ADD)]
    found = results(stage, *given)
    assert (found["a"], found["b"]) == ("kept", "kept")
    assert found["broken"] in ("not_judgeable", "all_solutions_fail")


def test_a_missing_interpreter_is_an_error_and_drops_nothing(judge, cache, monkeypatch):
    def lacking(problem):
        raise HostError("no compiler. Fix: install one")

    monkeypatch.setattr(judge, "check", lacking)
    stage = Verification(CandidatePrograms(judge, cache, 4), "all", frozenset())
    with pytest.raises(HostError, match="install one"):
        list(stage.run([candidate("a", ADD)]))
