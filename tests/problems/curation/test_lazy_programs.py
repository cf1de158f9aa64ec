"""Lazy programs, and the problems that accept them."""

from __future__ import annotations

import pytest

from autoclave.core import CallCase, CallTests, CheckTests
from autoclave.problems.curation.lazy_programs import accepting_lazy_programs, lazy_programs
from autoclave.problems.curation.programs import CandidatePrograms

from .conftest import ADD, candidate


def checked(id: str, source: str, statement: str = "", preamble: str = ""):
    return candidate(id, tests=CheckTests("check", "f", source, "check(candidate)", preamble))


def accepted(programs: CandidatePrograms, *candidates) -> dict[str, list[str]]:
    return {problem.id: names for problem, names in accepting_lazy_programs(programs, candidates)}


def test_problems_that_accept_a_lazy_program_are_named_with_what_it_does(programs: CandidatePrograms):
    def check(*asserts: str) -> str:
        return "def check(f):\n" + "".join(f"    assert {one}\n" for one in asserts)

    found = accepted(
        programs,
        checked("anything", check("f([1]) is not None")),
        checked("constant", check("f(3) == 'x'", "f(4) == 'x'")),
        checked("copies", check("f([1, 2]) == [1, 2]", "f([3]) == [3]")),
        checked("node", check("isinstance(f(1), Node)"), preamble="class Node:\n    def __init__(self, value): ..."),
        checked("strong", check("f(3) == 9", "f(4) == 16", "f([]) is None")),
        candidate("echo", ADD, cases=(("7\n", "7\n"), ("8\n", "8\n"))),
    )
    assert {id: names[0] for id, names in found.items()} == {
        "anything": "returns True",
        "constant": "returns 'x' (an assertion's)",
        "copies": "returns its first argument",
        "node": "returns an object of Node",
        "echo": "repeats its input",
    }


def test_constants_come_from_the_examples_of_a_statement():
    tests = CallTests("call", "Solution.f", [CallCase([1], 2)])
    for statement in (
        "def f(x):\n    '''\n    >>> f(1)\n    [7, 7]\n    '''",
        "**Input:** x = 1\n**Output:** [7, 7]\n",
        "f(1) ➞ [7, 7]",
    ):
        found = lazy_programs(candidate("c", statement=statement, tests=tests).problem)
        assert "returns [7, 7] (the statement's)" in found, statement
    texts = candidate(
        "s", statement="Add.\n\nExample\n\nInput\n1 2\n\nOutput\n3 4\n5\n\nNote\n", cases=(("1\n", "9\n"),)
    )
    written = lazy_programs(texts.problem)["prints the statement's example"].source
    assert written.endswith(r"sys.stdout.write('3 4\n5\n')")


def test_no_program_is_tried_twice():
    sources = [one.source for one in lazy_programs(checked("c", "assert f(1) == 0\n").problem).values()]
    assert len(sources) == len(set(sources))


def check(*lines: str) -> str:
    return "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)


def asserted(source: str) -> set[str]:
    names = lazy_programs(checked("c", source).problem)
    return {name.removeprefix("returns ").removesuffix(" (an assertion's)") for name in names}


@pytest.mark.parametrize(
    ("lines", "literal"),
    [
        (["assert candidate(1) == 30"], "30"),
        (["assert -7 == candidate(5)"], "-7"),
        (["assert candidate(1) == [1, 'a']"], "[1, 'a']"),
        (["assert abs(candidate(1) - 2.5) < 1e-6"], "2.5"),
        (["assert math.isclose(candidate(1), 2.5, rel_tol=1e-6)"], "2.5"),
        (["assert set(candidate([7])) == {1, 2}"], "{1, 2}"),
        (["np.testing.assert_allclose(candidate(9), 4.5)"], "4.5"),
        (["self.assertEqual(candidate(9), 45)"], "45"),
        (["results = [8, 8, 9]", "for each in results: assertion(candidate(1), each, 0)"], "8"),
        (["expected = 12", "assert candidate(1) == expected"], "12"),
        (["for given, right in [(3, 30), (4, 30)]: assert candidate(given) == right"], "30"),
    ],
)
def test_literals_that_assertions_compare_with_are_returned(lines: list[str], literal: str):
    assert literal in asserted(check(*lines))


def test_arguments_of_the_candidate_are_not_expected():
    assert "12345" not in asserted(check("assert candidate(12345) == 2", "assert abs(candidate(12345) - 3) < 1e-6"))
    renamed = check("assert isclose(12345) == 2").replace("candidate", "isclose")
    assert "12345" not in asserted(renamed)
    named = CheckTests("check", "closest", "assert closest(12345) == 2\n", "")
    assert not any("12345" in name for name in lazy_programs(candidate("n", tests=named).problem))


def test_the_most_common_literals_are_returned_however_many_there_are():
    few = [f"assert candidate({n}) == {100 + n % 9}" for n in range(1, 50)]
    assert {"101", "99"} <= asserted(check(*few, *["assert candidate(0) == 99"] * 9))


def test_problems_whose_assertions_all_expect_one_answer_are_found(programs: CandidatePrograms):
    weak = [
        checked(f"{style} {answer}", check("assert candidate(0) != 0", *(style.format(n, answer) for n in range(1, 4))))
        for style in (
            "assert candidate({}) == {}",
            "assert {1} == candidate({0})",
            "assert abs(candidate({}) - {}) < 1e-6",
        )
        for answer in (30, -7, 2, 0.5)
    ]
    strong = checked("strong", check("assert candidate(1) == 30", "assert candidate(2) == 31"))
    assert accepted(programs, *weak, strong).keys() == {each.problem.id for each in weak}
