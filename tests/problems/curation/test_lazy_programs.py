"""Programs that know nothing: what they do, and which problems accept them."""

from __future__ import annotations

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
