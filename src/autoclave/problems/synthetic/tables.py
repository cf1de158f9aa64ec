"""The three domains: lists of integers, strings of small letters, and integers. `tables.txt` has their operations.

In a section of the file, a line is `name | phrasings | code | wrong versions of the code | kinds of parameters`,
continued on indented lines. ` ; ` separates alternatives, and `items` marks a final whose value is a list.
"""

from __future__ import annotations

from pathlib import Path

from autoclave.problems.synthetic.operations import Domain, Operation, Parameter

_TABLES = Path(__file__).with_name("tables.txt").read_text("utf-8")
_SECTIONS = {name: lines for name, _, lines in (part.partition("]\n") for part in _TABLES[1:].split("\n\n["))}


def _operations(section: str) -> tuple[Operation, ...]:
    found: list[Operation] = []
    for line in _SECTIONS[section].strip().replace("\n    ", " ").splitlines():
        name, phrasings, code, wrong, *kinds = line.replace("\\n", "\n").split(" | ")
        marks = kinds[0].split() if kinds else []
        parameters = tuple(Parameter(mark) for mark in marks if mark != "items")
        alternatives = tuple(phrasings.split(" ; ")), code, tuple(wrong.split(" ; "))
        found.append(Operation(name, *alternatives, parameters, has_items="items" in marks))
    return tuple(found)


LISTS = Domain(
    name="list",
    variable="x",
    arguments="x",
    call_opening="f(x) on a list",
    stdin_opening="read integers x",
    reading="x = list(map(int, input().split()))",
    starts=(),
    operations=_operations("list operations"),
    finals=_operations("list finals"),
)
TEXTS = Domain(
    name="text",
    variable="s",
    arguments="s",
    call_opening="f(s) on a text",
    stdin_opening="read a line s",
    reading="s = input()",
    starts=(),
    operations=_operations("text operations"),
    finals=_operations("text finals"),
)
INTEGERS = Domain(
    name="integer",
    variable="n",
    arguments="a, b",
    call_opening="f(a, b) on integers",
    stdin_opening="read integers a and b",
    reading="a, b = map(int, input().split())",
    starts=_operations("integer starts"),
    operations=_operations("integer operations"),
    finals=_operations("integer finals"),
)
