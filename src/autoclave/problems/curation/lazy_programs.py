"""Lazy programs: programs without knowledge of the problem, such as constants. Sound tests fail all of them."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from textwrap import indent

from autoclave.core import CallTests, CheckTests, Problem, Program, Status, StdinTests, Verdict
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.assertions import expected_literals, is_literal
from autoclave.problems.curation.programs import CandidatePrograms, JudgedCandidate
from autoclave.problems.curation.python_source import UNREADABLE, tree_of
from autoclave.problems.curation.stage import Dropped

_LITERAL_LIMIT = 10_000
"""Longest constant of a program, in characters."""
_NUM_COMMON = 3
"""Number of most common literals of assertions to try; tolerances are among them."""
_FIRST = "[*arguments, *named.values()][0]"
_VALUES = (
    *("None", "True", "False", "0", "1", "-1", "float('nan')", "float('inf')", "-float('inf')"),
    *("''", "[]", "()", "{}", "set()", "[[]]"),
)
_INPUTS = {
    "its first argument": _FIRST,
    "its arguments": "arguments",
    "its arguments in a list": "[*arguments, *named.values()]",
    "as many zeros as its first argument has items": f"[0] * len({_FIRST})",
}
_EXAMPLE_VALUE = re.compile(
    r"^\s*>>> .*\n(?!\s*>>>)(.+)|\boutput[*\s]*:[*\s]*(?:</\w+>)?[*\s]*([^\n<]+)|(?:==|=>|➞|->)\s*([^\n]+)",
    re.MULTILINE | re.IGNORECASE,
)
_EXAMPLE_OUTPUT = re.compile(r"^\W*(?:(?:sample|example) )?outputs?\W*\d*\W*\n+((?:.*\S.*(?:\n|$))+)", re.M | re.I)
_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}


def lazy_programs(problem: Problem) -> dict[str, Program]:
    """Return lazy programs by a description of each; an empty dict for other languages than Python."""
    tests = problem.tests
    if problem.language != "python":
        return {}
    if isinstance(tests, StdinTests):
        return _printing(problem.statement, [case.output for case in tests.cases])
    if not isinstance(tests, CallTests | CheckTests):
        return {}
    values = {f"returns {value}": value for value in _VALUES}
    values |= {f"returns {what}": value for what, value in _INPUTS.items()}
    if isinstance(tests, CallTests):
        outputs = [json.dumps(case.output) for case in tests.cases]
        values |= {f"returns {name}": f"__import__('json').loads({text!r})" for name, text in _answers(outputs)}
    else:
        values |= {f"returns {text} (an assertion's)": text for text in _asserted(tests)}
    values |= {f"returns {text} (the statement's)": text for text in _example_values(problem.statement)}
    if "numpy" in problem.profile:
        values["returns an empty array"] = "__import__('numpy').array([])"
    bodies = {name: f"return {value}" for name, value in values.items()}
    for name in _classes(tests.preamble):
        body = f"try:\n    return {name}()\nexcept TypeError:\n    return {name}.__new__({name})"
        bodies[f"returns an object of {name}"] = body
    return _distinct({name: _function(tests.entry_point, body) for name, body in bodies.items()})


def accepted_names(problem: Problem, verdicts: Iterable[Verdict]) -> list[str]:
    """Return the names of the lazy programs that were accepted; `verdicts` are in the order of `lazy_programs`."""
    return [name for name, one in zip(lazy_programs(problem), verdicts, strict=False) if one.status is Status.ACCEPTED]


def accepting_lazy_programs(
    programs: CandidatePrograms, candidates: Iterable[ProblemCandidate]
) -> Iterator[tuple[Problem, list[str]]]:
    """Yield problems whose tests accept lazy programs, each with the descriptions of those.

    Raises HostError, IncompleteError: as `CandidatePrograms.judged`.
    """
    for judged in programs.judged(candidates, lambda candidate: list(lazy_programs(candidate.problem).values())):
        if isinstance(judged, JudgedCandidate):
            problem = judged.candidate.problem
            if names := accepted_names(problem, judged.verdicts):
                yield problem, names
        else:
            assert isinstance(judged, Dropped)  # it cannot be judged, so no program is accepted


def _printing(statement: str, outputs: Sequence[str]) -> dict[str, Program]:
    texts = [
        *_answers(outputs),
        *(("the statement's example", match[1]) for match in _EXAMPLE_OUTPUT.finditer(statement)),
    ]
    write = "import sys\nsys.stdout.write({})"
    found = {"prints nothing": Program("pass"), "repeats its input": Program(write.format("sys.stdin.read()"))}
    return _distinct(found | {f"prints {name}": Program(write.format(repr(text))) for name, text in texts})


def _answers(outputs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the outputs of the first test and of most tests, unless too long."""
    common = Counter(outputs).most_common(1)[0][0]
    named = [("the answer of the first test", outputs[0]), ("the most common answer", common)]
    return [(name, text) for name, text in named if len(text) <= _LITERAL_LIMIT]


def _asserted(tests: CheckTests) -> list[str]:
    """Return the first literal that the assertions compare with, and the most common ones."""
    try:
        found = [text for text in expected_literals(tests) if len(text) <= _LITERAL_LIMIT]
    except UNREADABLE:
        return []
    common = [text for text, _ in Counter(found).most_common(_NUM_COMMON)]
    return list(dict.fromkeys([*found[:1], *common]))


def _example_values(statement: str) -> list[str]:
    """Return the literals at the end of the first examples of a statement."""
    ends = (match[match.lastindex or 0] for match in _EXAMPLE_VALUE.finditer(statement))
    found = [_JSON_WORDS.get(text.strip(), text.strip()) for text in ends]
    return [text for text in found if len(text) <= _LITERAL_LIMIT and is_literal(text)][:2]


def _classes(preamble: str) -> list[str]:
    tree = tree_of(preamble)
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []


def _function(entry_point: str, body: str) -> Program:
    owner, _, name = entry_point.rpartition(".")
    source = f"def {name}({'self, ' if owner else ''}*arguments, **named):\n{indent(body, '    ')}\n"
    return Program(f"class {owner}:\n{indent(source, '    ')}" if owner else source)


def _distinct(programs: dict[str, Program]) -> dict[str, Program]:
    first: dict[str, str] = {}
    for name, program in programs.items():
        first.setdefault(program.source, name)
    return {name: programs[name] for name in first.values()}
