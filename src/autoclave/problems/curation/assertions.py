"""What test code expects of a candidate, read from its tree: nothing runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autoclave.core import CheckTests
from autoclave.problems.curation.python_source import tree_of

_COMPARING = re.compile(r"close|equal|assert|approx|abs$|set$|sorted$|list$|tuple$|round$", re.IGNORECASE)
_EXPECTED = re.compile("result|output|expected|answer", re.IGNORECASE)


def expected_literals(tests: CheckTests) -> Iterator[str]:
    """Literals that the assertions compare with, each time one occurs, as Python writes them.

    Those of lists named for results, and the last items of the tuples that a loop goes through, count too; arguments
    of calls do not, but for those that compare, such as `isclose`.
    """
    tree = tree_of(f"{tests.source}\n{tests.invocation}")
    names = _candidate_names(tests, tree) if tree else set()
    for node in ast.walk(tree) if tree else ():
        for place in _places(node, names):
            yield from map(ast.unparse, _outer_literals(place, names))


def _candidate_names(tests: CheckTests, tree: ast.Module) -> set[str]:
    """Names of the candidate in test code: the entry point, and the first parameter of functions that are invoked."""
    invoked = set(re.findall(r"(\w+)\(", tests.invocation))
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in invoked]
    parameters = {each.args.args[0].arg for each in functions if each.args.args}
    return {"candidate", tests.entry_point, tests.entry_point.rpartition(".")[2]} | parameters


def _places(node: ast.AST, names: set[str]) -> list[ast.expr]:
    """The expressions of a statement that hold what is expected."""
    match node:
        case ast.Assert(test=test):
            return [test]
        case ast.Expr(value=ast.Call() as call) if _compares(call, names):
            return [call]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _EXPECTED.search(name):
            return value.elts if isinstance(value, ast.List) else [value]
        case ast.For(iter=ast.List(elts=items) | ast.Tuple(elts=items)):
            return [item.elts[-1] for item in items if isinstance(item, ast.Tuple) and item.elts]
        case _:
            return []


def _outer_literals(node: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    """The largest literals in an expression, without the arguments of calls that compare nothing."""
    if isinstance(node, ast.expr) and is_literal(node):
        yield node
        return
    is_opaque = isinstance(node, ast.Call) and not _compares(node, names)
    for child in [] if is_opaque else ast.iter_child_nodes(node):
        yield from _outer_literals(child, names)


def _compares(call: ast.Call, names: set[str]) -> bool:
    """Whether the arguments of a call are results and expected values, as those of `isclose` or `assertEqual` are."""
    name = ast.unparse(call.func)
    return name not in names and bool(_COMPARING.search(name))


def is_literal(node: ast.expr | str) -> bool:
    """Whether an expression is a constant that `ast.literal_eval` reads."""
    try:
        ast.literal_eval(node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True
