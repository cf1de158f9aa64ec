"""Tests of EvalPlus, as lists of arguments (the reference returns the expected values) or as published test code.

The rules of comparison are those of EvalPlus (evalplus/eval/__init__.py): equal, or, if the reference returns floats or
the task has a tolerance, of one type and length and close; for some tasks of MBPP+ equal as sets, or both None or both
not; for one of HumanEval the result must be a root of the polynomial. The published test code does not compare type and
length, and numpy broadcasts: `allclose([], 1.0)` holds. `with_guards` adds these comparisons.
"""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoclave.problems.curation.python_source import tree_of

_SET_EQUAL = (
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
)
_NOT_NONE = ("check_str", "text_match_three", "text_starta_endb")
_RULES = {
    **dict.fromkeys(_SET_EQUAL, "set(found) == set(expected)"),
    **dict.fromkeys(_NOT_NONE, "_is_something(found) == _is_something(expected)"),
    "find_zero": "abs(sum(factor * found**power for power, factor in enumerate(arguments[0]))) <= {margin}",
}
"""Comparisons of functions, where it is not `_EQUAL`."""
_EQUAL = "_is_equal(found, expected, {margin})"
_CHECK, _GUARDS = (Path(__file__).with_name(name).read_text("utf-8") for name in ("plus_check.txt", "plus_guards.txt"))


def comparison_source(solution: str, entry_point: str, arguments: Sequence[Any], margin: float) -> str:
    """Return test code that defines `check(candidate)`, which calls both functions with each list of arguments.

    `solution` is the reference, `margin` the absolute tolerance of the task.
    """
    rule = _RULES.get(entry_point, _EQUAL).format(margin=margin)
    inputs = ",\n    ".join(map(repr, arguments))
    values = f"inf, nan = float('inf'), float('nan')\n_ARGUMENTS = [\n    {inputs},\n]\n"
    return f"{solution}\n\n_reference = {entry_point}\n{values}{_CHECK.format(reference='_reference', rule=rule)}"


_WRAPPERS = {"allclose": "_guarded", "assert_allclose": "_guarded", "_poly": "_magnitude"}
"""Wrapper of a called function, by the last part of its name."""


def with_guards(source: str) -> str:
    """Return published test code with the guards of EvalPlus's own evaluator; other test code as it is.

    Comparisons require the expected type and shape, and a root must be within the tolerance from both sides.
    """
    tree = tree_of(source)
    helpers = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else set[str]()
    if tree is None or not helpers & {"assertion", "_poly"}:
        return source
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    places = [(node, _WRAPPERS[name]) for node in called if (name := ast.unparse(node).rpartition(".")[2]) in _WRAPPERS]
    lines = [line.encode() for line in source.split("\n")]
    for node, wrapper in sorted(places, key=lambda place: (place[0].lineno, place[0].col_offset), reverse=True):
        line, begin, end = lines[node.lineno - 1], node.col_offset, node.end_col_offset or 0
        lines[node.lineno - 1] = line[:begin] + f"{wrapper}({line[begin:end].decode()})".encode() + line[end:]
    return f"{_GUARDS}\n" + b"\n".join(lines).decode()
