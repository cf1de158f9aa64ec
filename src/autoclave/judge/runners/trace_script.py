"""Run the program as `script` does, and send the final variables of the main program and of its main function.

The main program's variables are the names that its text assigns at the level of the module, or in a function under
`global`. Its main function is the one that its last statement calls. Only that call is changed: `f(x)` becomes
`.returned(f(x, **.await_call(f)))`, whose added part is evaluated last and adds no options: the program calls `f`
itself, from the same frame.

The texts of `traced_values`, `plain_data`, `frames`, `python_program`, `failure`, `script` and `observation` stand
before this text, whose `prepare` and `run` replace those of `python_program` and `script`.
"""

import ast
import builtins
import os
import symtable
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.observation import Observation, is_dunder, report_trace
    from autoclave.judge.runners.python_program import PROGRAM_FILE, PythonProgram
    from autoclave.judge.runners.script import _execute, _wind_down  # pyright: ignore[reportPrivateUsage]
    from autoclave.judge.traced_values import with_lists

_AWAIT_CALL, _RETURNED = ".await_call", ".returned"  # no program can write such names


class ObservedProgram(PythonProgram):
    """A program whose main function is observed when its last statement calls it."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.names = list(dict.fromkeys(_assigned_names(symtable.symtable(source, PROGRAM_FILE, "exec"))))
        tree = ast.parse(source, PROGRAM_FILE)
        self.main_function = _main_function(tree)
        if self.main_function:
            tree.body[-1] = ast.fix_missing_locations(_Observer(self.main_function).visit(tree.body[-1]))
            self.code = compile(tree, PROGRAM_FILE, "exec", dont_inherit=True)


def prepare(content: bytes, _place: Any) -> ObservedProgram:
    """The program; raises what `compile` raises."""
    return ObservedProgram(content.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))


def run(test: Any) -> None:
    """Run the program, report its variables, and leave the process. Does not return."""
    observation = Observation()
    setattr(builtins, _AWAIT_CALL, observation.await_call)
    setattr(builtins, _RETURNED, observation.returned)
    code = _execute(test)
    end_threads: Any = getattr(threading, "_shutdown", None)
    end_threads()
    variables = _main_variables(test)
    prefix = test.program.main_function
    variables |= {f"{prefix}.{name}": value for name, value in observation.variables().items()}
    report_trace(variables)
    os._exit(_wind_down(test, code))


def _main_variables(test: Any) -> "dict[str, Any]":
    """Return the variables of a trace, in the order of the text."""
    namespace = test.main.__dict__
    return with_lists({name: namespace[name] for name in test.program.names if name in namespace})


def _assigned_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the module that the text assigns; not what it imports, defines or only deletes."""
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_assigned() and (is_module or symbol.is_global()) and not is_dunder(symbol.get_name()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _assigned_names(inner)


def _main_function(tree: ast.Module) -> str:
    """The function of the program that its last statement calls, or nothing. Blocks end with their own last one."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    statement: Any = tree.body[-1] if tree.body else None
    while isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
        statement = statement.body[-1]
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Assert):
        return ""
    called = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return next((name.id for name in called if isinstance(name, ast.Name) and name.id in functions), "")


class _Observer(ast.NodeTransformer):
    """Rewrites calls of one function so that they are observed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == self._name:
            options = ast.keyword(None, ast.Call(ast.Name(_AWAIT_CALL, ast.Load()), [node.func], []))
            node.keywords.append(ast.copy_location(options, node.func))
            return ast.copy_location(ast.Call(ast.Name(_RETURNED, ast.Load()), [node], []), node)
        return node
