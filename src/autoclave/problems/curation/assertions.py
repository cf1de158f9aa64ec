"""Read from the tree of test code what it expects of the function under test; nothing runs."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from autoclave.core import CheckTests
from autoclave.problems.curation.python_source import UNREADABLE, tree_of

_COMPARING = re.compile(r"close|equal|assert|approx|abs$|set$|sorted$|list$|tuple$|round$", re.IGNORECASE)
_EXPECTED = re.compile("result|output|expected|answer", re.IGNORECASE)


def expected_literals(tests: CheckTests) -> Iterator[str]:
    """Yield each literal that the assertions compare with, as Python writes it. May raise `UNREADABLE`.

    Literals of lists named after results, and last items of the tuples of a loop, count too; arguments of calls do not,
    except of comparisons such as `isclose`.
    """
    tree = tree_of(f"{tests.source}\n{tests.invocation}")
    names = _candidate_names(tests, tree) if tree else set()
    for node in ast.walk(tree) if tree else ():
        for place in _places(node, names):
            yield from map(ast.unparse, _outer_literals(place, names))


def asserted_cases(tests: CheckTests) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """Yield arguments and expected value of each assertion on one call of the candidate with constant arguments.

    May raise `UNREADABLE`. The lists `inputs` and `results` of EvalPlus count as assertions.
    """
    tree = tree_of(tests.source)
    names = _candidate_names(tests, tree) if tree else set()
    lists: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Assert(test=test):
                calls = [each for each in ast.walk(test) if isinstance(each, ast.Call) and _is_candidate(each, names)]
                expected = _expected(test, names)
                if len(calls) == 1 and expected is not None and _is_constant(calls[0]):
                    yield [*calls[0].args, *(keyword.value for keyword in calls[0].keywords)], expected
            case ast.Assign(targets=[ast.Name(id="inputs" | "results" as name)], value=ast.List(elts=items)):
                lists[name] = items
            case _:
                pass
    inputs, results = lists.get("inputs", []), lists.get("results", [])
    if len(inputs) == len(results):
        for given, expected in zip(inputs, results, strict=True):
            yield given.elts if isinstance(given, ast.List | ast.Tuple) else [given], expected


def _expected(test: ast.expr, names: set[str]) -> ast.expr | None:
    """Return the other side of an equation with the candidate's result, or the first literal in the comparison."""
    match test:
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq() | ast.Is()], comparators=[right]) if _is_candidate(
            call, names
        ):
            return right
        case _:
            return next(_outer_literals(test, names), None)


def _is_candidate(call: ast.Call, names: set[str]) -> bool:
    """Return whether a call is of the candidate, as a function or as a method of an object."""
    return (call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)) in names


def _is_constant(call: ast.Call) -> bool:
    """Return whether arguments are literals, or made of them by calls: no variables."""
    functions = {id(node.func) for node in ast.walk(call) if isinstance(node, ast.Call)}
    return all(id(node) in functions for node in ast.walk(call) if isinstance(node, ast.Name))


def normalised_code(tests: CheckTests) -> str:
    """Return test code without comments, docstrings and variable names, with the helpers of the preamble it uses.

    Empty if Python cannot parse it; may raise `UNREADABLE`.
    """
    tree = tree_of(tests.source)
    if tree is None:
        return ""
    names = _candidate_names(tests, tree)
    code = [ast.unparse(_Renamed(names).visit(node)) for node in _statements(tree.body, tests) if not _is_note(node)]
    used = set(re.findall(r"\w+", "\n".join(code)))
    preamble = tree_of(tests.preamble)
    helpers = [each for each in preamble.body if _defined(each) in used] if preamble else []
    return "\n".join([*map(ast.unparse, helpers), *code])


def _statements(body: list[ast.stmt], tests: CheckTests) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and instead of its test functions their bodies."""
    for node in body:
        yield from node.body if _is_invoked(node, tests) else [node]


def _is_invoked(node: ast.stmt, tests: CheckTests) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and bool(re.search(rf"\b{node.name}\(", f"check( {tests.invocation}"))


def _is_note(node: ast.stmt) -> bool:
    """Return whether a statement checks nothing: a docstring, an import, a print."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assign(targets=[ast.Name(id="METADATA")]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="check" | "print"))) | ast.Import() | ast.ImportFrom():
            return True
        case _:
            return False


def _defined(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


class _Renamed(ast.NodeTransformer):
    """Renames the candidate to `candidate`, and removes messages of assertions."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("candidate", node.ctx) if node.id in self._names else node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        return ast.Assert(self.visit(node.test), None)


def _candidate_names(tests: CheckTests, tree: ast.Module) -> set[str]:
    """Return the names of the candidate: the entry point, and the first parameter of invoked functions."""
    parameters = {each.args.args[0].arg for each in tree.body if _is_invoked(each, tests) and each.args.args}
    return {"candidate", tests.entry_point, tests.entry_point.rpartition(".")[2]} | parameters


def _places(node: ast.AST, names: set[str]) -> list[ast.expr]:
    """Return the expressions of a statement that hold expected values."""
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
    """Yield the outermost literals in an expression, except arguments of calls that do not compare."""
    if isinstance(node, ast.expr) and is_literal(node):
        yield node
        return
    is_opaque = isinstance(node, ast.Call) and not _compares(node, names)
    for child in [] if is_opaque else ast.iter_child_nodes(node):
        yield from _outer_literals(child, names)


def _compares(call: ast.Call, names: set[str]) -> bool:
    """Return whether the arguments of a call are results and expected values, as those of `isclose` are."""
    name = ast.unparse(call.func)
    return name not in names and bool(_COMPARING.search(name))


def is_literal(node: ast.expr | str) -> bool:
    """Return whether an expression is a constant that `ast.literal_eval` reads."""
    try:
        ast.literal_eval(node)
    except UNREADABLE:
        return False
    return True
