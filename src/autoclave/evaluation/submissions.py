"""Extract the program or answer to judge from a response. Pure string functions; None without one.

Nothing runs here. The extracted text is untrusted, and is judged as such.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from autoclave.core import Problem
from autoclave.judge import ANSWER_RULES, EXTRACTION_RULES
from autoclave.judge.final_answer import answer_line
from autoclave.problems.curation.python_source import UNREADABLE

SubmissionOf = Callable[[Problem, str], str | None]

THINKING_BEGIN = "<think>"
_TAGGED = re.compile(r"\[ANSWER\](.*?)(?:\[/ANSWER\]|\Z)", re.DOTALL)
_MOST_CALL = 20_000
"""Longest call that is parsed, in characters."""
_BUILDER_NAMES = """
abs bin bool bytearray bytes chr complex dict divmod enumerate float frozenset hex int len list max min oct ord pow
range repr reversed round set sorted str sum tuple zip
"""
_BUILDERS = frozenset(_BUILDER_NAMES.split())
_PARTS = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.keyword, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.JoinedStr, ast.FormattedValue),
)
"""Syntax nodes that an argument may consist of, beside calls of builders."""


def without_thinking(response: str, end: str, *, is_opened: bool = False) -> str:
    """Return the response after the last `end` of reasoning; empty if the reasoning never ends.

    `is_opened`: the prompt began the reasoning, so that a response without an end is all reasoning.
    """
    if not end:
        return response
    _, found, rest = response.rpartition(end)
    is_reasoning = rest.lstrip().startswith(THINKING_BEGIN) or (is_opened and not found)
    return "" if is_reasoning else rest


def completion(stops: Sequence[str], problem: Problem, response: str) -> str | None:
    """Return the statement, which is code, and its continuation in the response up to the first of `stops`."""
    ends = [place for stop in stops if (place := response.find(stop)) >= 0]
    return problem.statement + response[: min(ends, default=len(response))]


def continuation(problem: Problem, response: str) -> str | None:
    """Return the starter code and the block of the response, or the block alone if it repeats the starter code."""
    block = EXTRACTION_RULES["lcb"](response)
    if block is None:
        return None
    begin = problem.starter_code
    return block if not begin or block.startswith(begin) else f"{begin}\n{block}"


def value(response: str) -> str | None:
    """Return a predicted value: in [ANSWER] tags, on the last line that begins with `Answer:`, or on the last line.

    Of an assertion or a comparison, the right side.
    """
    found = _stated(response)
    return None if found is None else _right_of_equals(found)


def call_arguments(problem: Problem, response: str) -> str | None:
    """Return a program whose function `predicted` calls `f` of the problem with the arguments in the response.

    Arguments may consist of literals, operators, and calls of builtin types. Anything else, such as an object that is
    equal to everything, is not an answer.
    """
    found = _stated(response)
    if found is None or len(found) > _MOST_CALL:
        return None
    found = found.strip("`").removeprefix("assert ").strip()
    call = found if found.startswith("f(") else f"f({found})"
    tree = _expression(call)
    if isinstance(tree, ast.Compare):
        tree = tree.left  # `f(1) == 2`
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "f"):
        return None
    if not all(_is_value(node) for argument in (*tree.args, *tree.keywords) for node in ast.walk(argument)):
        return None
    return f"def predicted():\n    return {ast.unparse(tree)}\n"


def rule_of(name: str, stops: Sequence[str]) -> SubmissionOf:
    if name in _OF_PROBLEM:
        return _OF_PROBLEM[name]
    if name == "completion":
        return partial(completion, tuple(stops))
    of_response = _OF_RESPONSE[name]
    return lambda problem, response: of_response(response)


_OF_PROBLEM: Mapping[str, SubmissionOf] = {"continuation": continuation, "call_arguments": call_arguments}
_OF_RESPONSE: Mapping[str, Callable[[str], str | None]] = {**ANSWER_RULES, **EXTRACTION_RULES, "value": value}


def _stated(response: str) -> str | None:
    tagged = _TAGGED.findall(response)
    if tagged:
        return tagged[-1].strip() or None
    line = answer_line(response)
    if line is not None:
        return line
    lines = [line.strip() for line in response.split("\n") if line.strip() and not line.strip().startswith("```")]
    return lines[-1] if lines else None


def _right_of_equals(text: str) -> str | None:
    """Return the right side of a comparison such as `f(1) == [1]`; another text as it is."""
    text = text.strip().strip("`").removeprefix("assert ").strip()
    match _expression(text):
        case ast.Compare(ops=[ast.Eq()], comparators=[right]):
            return ast.get_source_segment(text, right) or None
        case _:
            return text or None


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except UNREADABLE:
        return None


def _is_value(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _BUILDERS
        case ast.Name(id=name):
            return name in _BUILDERS
        case ast.Call():
            return False
        case _:
            return isinstance(node, _PARTS)
