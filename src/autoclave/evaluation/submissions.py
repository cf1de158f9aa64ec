"""From a response to what is judged: a program or an answer. Pure text functions; None means that there is none.

Nothing is run here. What a rule takes from a response is text of the model, and is judged as such.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from autoclave.core import Problem
from autoclave.judge import ANSWER_RULES, EXTRACTION_RULES
from autoclave.judge.final_answer import answer_line

SubmissionOf = Callable[[Problem, str], str | None]

THINKING_BEGIN = "<think>"
_TAGGED = re.compile(r"\[ANSWER\](.*?)(?:\[/ANSWER\]|\Z)", re.DOTALL)
_MOST_CALL = 20_000
"""Characters of a call that is read."""
_BUILDERS = frozenset(
    {
        *("abs", "bin", "bool", "bytearray", "bytes", "chr", "complex", "dict", "divmod", "float", "frozenset", "hex"),
        *(
            "int",
            "len",
            "list",
            "max",
            "min",
            "oct",
            "ord",
            "pow",
            "range",
            "repr",
            "reversed",
            "round",
            "set",
            "sorted",
        ),
        *("str", "sum", "tuple", "zip", "enumerate"),
    }
)
_PARTS = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.keyword, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.JoinedStr, ast.FormattedValue),
)
"""Syntax nodes that an argument may consist of, beside calls of builders: it is a value, and does nothing to the
function."""


def without_thinking(response: str, end: str, *, is_opened: bool = False) -> str:
    """Return what comes after reasoning: after the last `end`. Of a response whose reasoning never ends, nothing.

    `is_opened`: the prompt began the reasoning, so that a response without an end is nothing else.
    """
    if not end:
        return response
    _, found, rest = response.rpartition(end)
    is_reasoning = rest.lstrip().startswith(THINKING_BEGIN) or (is_opened and not found)
    return "" if is_reasoning else rest


def completion(stops: Sequence[str], problem: Problem, response: str) -> str | None:
    """The statement, which is code, and the response that goes on from it up to the first of `stops`."""
    ends = [place for stop in stops if (place := response.find(stop)) >= 0]
    return problem.statement + response[: min(ends, default=len(response))]


def continuation(problem: Problem, response: str) -> str | None:
    """The starter code and the block of the response that goes on from it, or the block alone if it has all of it."""
    block = EXTRACTION_RULES["lcb"](response)
    if block is None:
        return None
    begin = problem.starter_code
    return block if not begin or block.startswith(begin) else f"{begin}\n{block}"


def value(response: str) -> str | None:
    """A predicted value: in [ANSWER] tags, on the last line that begins with `Answer:`, or on the last line at all.

    Of an assertion or a comparison, what the call is said to be equal to.
    """
    found = _stated(response)
    return None if found is None else _right_of_equals(found)


def call_arguments(problem: Problem, response: str) -> str | None:
    """A program whose function `predicted` calls `f` of the problem with the arguments that the response gives.

    Arguments are values: literals, what operators make of them, and calls of builtin types. Anything else, such as an
    object that is equal to everything, is no answer.
    """
    found = _stated(response)
    if found is None or len(found) > _MOST_CALL:
        return None
    found = found.strip("`").removeprefix("assert ").strip()
    call = found if found.startswith("f(") else f"f({found})"
    try:
        tree = ast.parse(call, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(tree, ast.Compare):
        tree = tree.left  # `f(1) == 2`
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "f"):
        return None
    if not all(_is_value(node) for argument in (*tree.args, *tree.keywords) for node in ast.walk(argument)):
        return None
    return f"def predicted():\n    return {ast.unparse(tree)}\n"


def rule_of(name: str, stops: Sequence[str]) -> SubmissionOf:
    """The rule of that name, as settings give it."""
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
    """Return what stands right of the comparison in `f(1) == [1]`; the text itself where it is none."""
    text = text.strip().strip("`").removeprefix("assert ").strip()
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text or None
    is_equation = isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq)
    if isinstance(tree, ast.Compare) and is_equation:
        right = ast.get_source_segment(text, tree.comparators[0])
        return right or None
    return text or None


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
