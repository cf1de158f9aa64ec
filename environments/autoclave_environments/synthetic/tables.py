"""The three domains: lists of integers, strings of small letters, and integers. `tables.txt` has their operations.

The section of a domain has the fields of `Domain` in one line. In the others, a line is
`name | phrasings | code | wrong versions of the code | kinds of parameters`. ` ; ` separates alternatives, and `items`
marks a final whose value is a list, `shown` an operation whose parameter is in its result.
"""

from pathlib import Path

from autoclave.core.sections import read_sections
from autoclave_environments.synthetic.operations import Domain, Operation, Parameter

_SECTIONS = read_sections(Path(__file__).with_name("tables.txt"))


def _operations(section: str) -> tuple[Operation, ...]:
    found: list[Operation] = []
    for line in _SECTIONS.get(section, ()):
        name, phrasings, code, wrong, *kinds = line.replace("\\n", "\n").split(" | ")
        marks = kinds[0].split() if kinds else []
        parameters = tuple(Parameter(mark) for mark in marks if mark not in ("items", "shown"))
        alternatives = tuple(phrasings.split(" ; ")), code, tuple(wrong.split(" ; "))
        found.append(Operation(name, *alternatives, parameters, has_items="items" in marks, is_shown="shown" in marks))
    return tuple(found)


def _domain(name: str) -> Domain:
    parts = (_operations(f"{name} {kind}") for kind in ("starts", "operations", "finals"))
    return Domain(name, *_SECTIONS[name][0].split(" | "), *parts)  # pyright: ignore[reportArgumentType]


LISTS, TEXTS, INTEGERS = map(_domain, ("list", "text", "integer"))
