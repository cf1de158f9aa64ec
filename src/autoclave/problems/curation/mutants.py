"""Programs that are wrong in one small place, made of a right one.

One token is changed (an operator becomes a neighbour, a number one more, a word its opposite), or in Python a condition
is negated or a statement left out. Comments and texts stay.
Pure functions of the source; nothing runs. A mutant may do the same as the original: who uses them must allow for that.
"""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autoclave.problems.curation.python_source import tree_of

_OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "//": "*",
    "%": "+",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+=": "-=",
    "-=": "+=",
    "&&": "||",
    "||": "&&",
    "&": "|",
    "|": "&",
    "^": "&",
    "<<": ">>",
}
_WORDS = {
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "True": "False",
    "False": "True",
    "true": "false",
    "false": "true",
    "any": "all",
    "all": "any",
    "break": "pass",
    "continue": "pass",
    "upper": "lower",
    "lower": "upper",
}
_CPP_ONLY = {"break": ";", "continue": ";"}
_CPP_TOKEN = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#[^\n]*)"
    r"|(?P<number>\b\d+\b(?![.\w]))|(?P<word>[A-Za-z_]\w*)|(?P<operator><<|>>|<=|>=|==|!=|\+=|-=|&&|\|\||\+\+|--|->|[-+*/%<>&|^])",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Change:
    start: int
    end: int
    text: str


def mutants(source: str, language: str, count: int, seed: int) -> list[str]:
    """Up to `count` different mutants, drawn evenly over the places that can be changed; fewer if there are fewer.

    Each can be compiled as far as Python can tell; of other languages that is not known.
    """
    is_python = language == "python"
    changes = [*_python_tokens(source), *_python_statements(source)] if is_python else list(_cpp_tokens(source))
    order = random.Random(seed).sample(changes, len(changes))
    found: dict[str, None] = {}
    for change in order:
        if len(found) >= count:
            break
        mutant = source[: change.start] + change.text + source[change.end :]
        if mutant != source and (language != "python" or tree_of(mutant)):
            found[mutant] = None
    return list(found)


def _python_tokens(source: str) -> Iterator[_Change]:
    starts = _line_starts(source)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source, newline="").readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
    for token in tokens:
        if token.type not in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
            continue
        text = _changed(token.string)
        if text is not None:
            start = starts[token.start[0] - 1] + token.start[1]
            yield _Change(start, start + len(token.string), text)


def _python_statements(source: str) -> Iterator[_Change]:
    tree = tree_of(source)
    if tree is None:
        return
    starts, lines = _line_starts(source), list(io.StringIO(source, newline=""))

    def place(line: int, column: int) -> int:  # columns are told in bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Constant):
            start, end = _span(node.test, place)
            yield _Change(start, end, f"(not ({source[start:end]}))")
        elif isinstance(node, ast.Assign | ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield _Change(*_span(node, place), "pass")


def _span(node: ast.expr | ast.stmt, place: Callable[[int, int], int]) -> tuple[int, int]:
    return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)


def _line_starts(source: str) -> Sequence[int]:
    starts = [0]
    for line in io.StringIO(source, newline=""):
        starts.append(starts[-1] + len(line))
    return starts


def _cpp_tokens(source: str) -> Iterator[_Change]:
    for match in _CPP_TOKEN.finditer(source):
        if match["skip"] is None:
            text = _CPP_ONLY.get(match[0]) or _changed(match[0])
            if text is not None:
                yield _Change(match.start(), match.end(), text)


def _changed(token: str) -> str | None:
    if token.isdecimal() and token.isascii() and len(token) < 19:
        return str(int(token) + 1)
    return _OPERATORS.get(token) or _WORDS.get(token)
