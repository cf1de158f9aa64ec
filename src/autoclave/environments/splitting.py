"""Test modules of a suite as text for cells: what they import of the code under test, and their tests. Runs nothing."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autoclave.core import InputError

_IN_ONE_PROCESS = {"monkeypatch", "capsys", "caplog", "capfd", "mocker"}
_NOT_COUNTED = {"skipif", "xfail", "skipIf", "skipUnless", "expectedFailure", "usefixtures"}


@dataclass(slots=True)
class TestModule:
    """One module: its tests by name, and for two cells the text of each side."""

    __test__ = False  # not a test class of pytest
    path: str
    tree: ast.Module
    tests: list[str]
    imports: list[str] = field(default_factory=list[str])
    """In two cells, statements of the program that bind what tests import of it; in one, names of other modules."""
    exceptions: set[str] = field(default_factory=set[str])
    """Its exceptions that the tests name."""


def read_module(path: str, source: str, modules: Sequence[str], *, is_split: bool) -> TestModule:
    """Parse a test module, and rewrite it for two cells (`is_split`) or for one.

    Raises InputError: it does not compile, or uses what a suite cannot; the message names the line.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: does not compile ({error})") from None
    tree.body = [node for node in tree.body if not _is_of_scripts(node)]
    module = TestModule(path, tree, list(_tests_of(tree, path)))
    if not module.tests:
        raise InputError(f"{path}: has no tests: functions test_*, or methods of classes Test* and of TestCase")
    if is_split:
        imported = {name for node in ast.walk(tree) for name in _names_of(node, modules)}
        _refuse_what_cannot_be_split(module, imported)
        module.tree = _Split(module, modules).visit(tree)
    else:
        module.imports += [name for node in ast.walk(tree) for name in _imported(node) if not _is_of(name, modules)]
        module.tree = _Compared().visit(tree)
    ast.fix_missing_locations(module.tree)
    return module


def _is_of_scripts(node: ast.stmt) -> bool:
    """Return whether a statement must not, or need not run in a cell: the guard of a script, an import of features."""
    is_guard = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    return is_guard or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _tests_of(tree: ast.Module, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        parts = [] if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ast.iter_child_nodes(node)
        for each in [node] if isinstance(node, ast.AsyncFunctionDef) else parts:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
                where = "a coroutine, or in a statement such as if"
                raise InputError(f"{path}:{each.lineno}: {each.name}: {where}: tests are functions and methods")
    cases, owners = set[str](), set[str]()  # classes that are of unittest, and those that have tests
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and _counts(node, path):
            yield node.name
        elif isinstance(node, ast.ClassDef) and _counts(node, path):
            bases = {ast.unparse(base) for base in node.bases}
            if any(base.endswith("TestCase") or base in cases for base in bases):
                cases.add(node.name)
            tests = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test")]
            is_read = node.name in cases or node.name.startswith("Test")
            if (tests and not is_read) or bases & owners or any(isinstance(each, ast.ClassDef) for each in node.body):
                raise InputError(
                    f"{path}:{node.lineno}: {node.name}: tests may be methods of TestCase and of classes whose names "
                    "begin with Test; those of other, inner and inherited classes would not run"
                )
            owners |= {node.name} if tests else set()
            yield from (f"{node.name}.{part.name}" for part in tests if _counts(part, path))


def _counts(node: ast.FunctionDef | ast.ClassDef, path: str) -> bool:
    """Return whether it is not skipped; whether it counts must be known before it runs."""
    names = {name for each in node.decorator_list for name in ast.unparse(each).partition("(")[0].split(".")}
    if found := sorted(names & _NOT_COUNTED):
        raise InputError(
            f"{path}:{node.lineno}: {node.name}: {found[0]}: which tests count must not depend on a run; "
            "use skip, or leave it out"
        )
    return "skip" not in names


def _is_of(name: str | None, modules: Sequence[str]) -> bool:
    return name is not None and name.partition(".")[0] in modules


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports, without the one that stands for pytest."""
    names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
    names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
    return [name for name in names if name != "pytest"]


def _names_of(node: ast.AST, modules: Sequence[str]) -> Iterator[str]:
    """Yield the names that an import of the code under test binds."""
    if isinstance(node, ast.ImportFrom) and _is_of(node.module, modules):
        yield from (alias.asname or alias.name for alias in node.names)
    if isinstance(node, ast.Import):
        yield from (each.asname or each.name.partition(".")[0] for each in node.names if _is_of(each.name, modules))


def _refuse_what_cannot_be_split(module: TestModule, imported: set[str]) -> None:
    def roots(nodes: Sequence[ast.expr]) -> set[str]:
        return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)} & imported

    for node in ast.walk(module.tree):
        what = ""
        match node:
            case ast.FunctionDef(args=given) if found := {each.arg for each in given.args} & _IN_ONE_PROCESS:
                what = f"the fixture {min(found)}"
            case ast.Name(id="patch") | ast.Attribute(attr="patch"):
                what = "patch"
            case ast.ImportFrom(level=level) if level:
                what = "a relative import"
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                what = "import *"
            case ast.ClassDef(bases=bases) if roots(bases):
                what = f"a subclass of {min(roots(bases))}"
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]) if roots([kinds]):
                what = f"isinstance with {min(roots([kinds]))}"
            case ast.Call(func=ast.Attribute(attr="raises" | "assertRaises" | "assertRaisesRegex"), args=[kinds, *_]):
                what = _noted(module, kinds, imported)
            case ast.ExceptHandler(type=ast.expr() as kinds):
                what = _noted(module, kinds, imported)
            case _:
                pass
        if what:
            raise InputError(
                f"{module.path}:{getattr(node, 'lineno', 0)}: {what}: cannot be tested from another cell; "
                "change the test, or ask for level = shared"
            )


def _noted(module: TestModule, kinds: ast.expr, imported: set[str]) -> str:
    """Note the exceptions of the code under test among `kinds`; return what cannot be carried."""
    for each in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
        if isinstance(each, ast.Name) and each.id in imported:
            module.exceptions.add(each.id)
        elif {part.id for part in ast.walk(each) if isinstance(part, ast.Name)} & imported:
            return f"the exception {ast.unparse(each)}, which is not imported by name"
    return ""


class _Split(ast.NodeTransformer):
    """Replaces imports of the code under test by names that the program is asked for."""

    def __init__(self, module: TestModule, modules: Sequence[str]) -> None:
        self._module = module
        self._modules = modules

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        kept = [alias for alias in node.names if not _is_of(alias.name, self._modules)]
        return [
            *([ast.Import(kept)] if kept else []),
            *self._bound(node, [a for a in node.names if a not in kept], None),
        ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        return self._bound(node, node.names, node.module) if _is_of(node.module, self._modules) else node

    def _bound(self, node: ast.stmt, aliases: list[ast.alias], module: str | None) -> list[ast.stmt]:
        statements: list[ast.stmt] = [ast.copy_location(ast.Pass(), node)]
        for alias in aliases:
            local = alias.asname or (alias.name if module else alias.name.partition(".")[0])
            far = local if local in self._module.exceptions else f"autoclave_import_{len(self._module.imports)}"
            if module:
                self._module.imports.append(f"from {module} import {alias.name} as {far}")
            else:
                whole = alias.name if alias.asname else local
                self._module.imports.append(f"import {alias.name}, {whole} as {far}")
            if far != local:
                statements.append(_assigned(local, ast.Name(far, ast.Load())))
        return statements


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


class _Compared(ast.NodeTransformer):
    """Replaces `==` and `!=` by a comparison that the code under test has no part in, and imports of pytest by a name.

    So the code under test finds no module to change or to take objects from that compare as it likes.
    """

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        suite = ast.Name("autoclave_suite", ast.Load())
        return [
            _assigned(each.asname or each.name, suite) if each.name == "pytest" else ast.Import([each])
            for each in node.names
        ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        suite = ast.Name("autoclave_suite", ast.Load())
        names = [(each.asname or each.name, ast.Attribute(suite, each.name, ast.Load())) for each in node.names]
        return [_assigned(*each) for each in names] if node.module == "pytest" else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return node
        called = _compared(node.left, *node.comparators)
        return called if isinstance(node.ops[0], ast.Eq) else ast.UnaryOp(ast.Not(), called)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="assertEqual") as function, args=[first, second, *_]):
                return ast.Call(ast.Attribute(function.value, "assertTrue", ast.Load()), [_compared(first, second)], [])
            case _:
                return node


def _compared(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("autoclave_is_equal", ast.Load()), [left, right], [])
