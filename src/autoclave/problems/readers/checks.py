"""Sets whose tests are Python code: HumanEval and what is made of it, MBPP, LeetCodeDataset, KodCode.

The code around the function under test becomes the preamble, which a program cannot replace. Nothing runs here.
"""

import ast
import builtins
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from autoclave.core import CheckTests, Problem
from autoclave.problems.curation.python_source import tree_of
from autoclave.problems.readers.row import RawRow, ReadProblem, UnusableRow, texts
from autoclave.problems.readers.statements import day, difficulty, without_prompt

_PLAIN, _NUMPY = "plain", "plain_numpy"
"""These tests import all they use; profiles with more names would shadow functions of the program."""
_IMPORTS_NUMPY = re.compile(r"^[ \t]*(?:import|from)[ \t]+numpy\b", re.MULTILINE)


def humaneval(row: RawRow) -> ReadProblem:
    """HumanEval, and HumanEval+ with its tests as code or as lists of arguments."""
    prompt, entry_point = row.text("prompt"), row.text("entry_point")
    solution = prompt + row.text("canonical_solution")
    if row.has("test"):
        source, invocation = with_guards(row.text("test")), f"check({entry_point})"
    else:
        arguments = [*row.list("base_input"), *row.list_or_empty("plus_input")]
        source = comparison_source(solution, entry_point, arguments, _tolerance(row))
        invocation = "check(candidate)"
    return _function(row, prompt, entry_point, source, invocation, [solution])


def humanevalpack(row: RawRow) -> ReadProblem:
    """HumanEvalPack in Python, whose tests call their check. The buggy solution is left out.

    Raises UnusableRow: the row is in another language (`other_language`).
    """
    id = row.text_or("", "task_id")
    if not id.startswith("Python/"):
        raise UnusableRow("other_language", f"task_id = {id!r}: must be in Python")
    solution = row.text("declaration", "prompt") + row.text("canonical_solution")
    id = f"HumanEval/{id.partition('/')[2]}"
    return _function(row, row.text("prompt"), row.text("entry_point"), row.text("test"), "", [solution], id)


def mbpp(row: RawRow) -> ReadProblem:
    """MBPP, its sanitised half, and MBPP+ with its tests as code or as lists of arguments."""
    number = row.text_or("", "task_id").rpartition("/")[2]
    solution = row.text("code", "canonical_solution")
    if row.has("base_input"):
        entry_point = row.text("entry_point")
        arguments = [*row.list("base_input"), *row.list_or_empty("plus_input")]
        source = comparison_source(solution, entry_point, arguments, _tolerance(row))
        tests = CheckTests("check", entry_point, source, "check(candidate)")
        statement = _docstring_or(row.text("prompt"))
    else:
        asserts = [*texts(row.list_or_empty("test_list")), *texts(row.list_or_empty("challenge_test_list"))]
        imports = texts(row.list_or_empty("test_imports"))
        setup = row.text_or("", "test_setup_code")
        source = with_guards(row.text_or("", "test")) or "\n".join([setup, *imports, *asserts])
        tests = CheckTests("check", tested_function("\n".join(asserts) or source), source, "")
        statement = row.text("text", "prompt")
    problem = Problem(
        statement,
        tests,
        id=f"mbpp/{number}" if number else "",
        solutions=[solution],
        profile=profile_of(tests, solution),
        source="mbpp",
    )
    return ReadProblem(problem, key=f"mbpp/{number}" if number else "")


def leetcode(row: RawRow) -> ReadProblem:
    """LeetCodeDataset of all releases: imports and helper classes are in its prompt."""
    meta = row.struct("meta") if row.has("meta") else row
    slug = row.text_or("", "task_id")
    tests = CheckTests(
        "check", row.text("entry_point").replace("()", ""), row.text("test"), "check(candidate)", row.text("prompt")
    )
    # releases before v0.3.1 have the statement as the title
    statement = row.text_or("", "problem_description") or meta.text_or("", "question_title", "problem_description")
    problem = Problem(
        statement or without_prompt(row.text("query")),
        tests,
        id=f"leetcode/{slug}" if slug else "",
        starter_code=row.text_or("", "starter_code") or meta.text_or("", "lang_code", "starter_code"),
        solutions=texts([row.fields.get("completion")]),
        profile="leetcode",
        source="leetcode",
        released=day(meta.text_or("", "estimated_date")),
        difficulty=difficulty(meta.text_or("", "difficulty")),
        tags=texts(meta.list_or_empty("tags")),
    )
    return ReadProblem(problem, key=f"leetcode/{slug}" if slug else "", title=slug.replace("-", " "))


def kodcode(row: RawRow) -> ReadProblem:
    """KodCode: tests are functions for pytest, which import the program as the module `solution`.

    Raises UnusableRow: the tests need more of pytest than `raises` and `approx` (`needs_pytest`).
    """
    source = row.text("test", "test_code")
    tree = tree_of(source)
    if tree is None:
        raise UnusableRow("malformed", "the tests are not valid Python")
    checks = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    if not checks:
        raise UnusableRow("no_tests", "the tests define no function whose name begins with test")
    declared = [one for one in row.list_or_empty("test_info") if isinstance(one, Mapping)]
    names = [str(cast("Mapping[str, Any]", one).get("function_name") or "") for one in declared]
    imported = _imported_from_solution(tree)
    entry_point = row.text_or("", "test_entry_point") or next((name for name in names if name in imported), "")
    entry_point = entry_point or next(iter(imported), "")
    if not entry_point:
        raise UnusableRow("no_function", "the tests import no function of the solution")
    checked = _without_pytest(source, tree)
    number = row.text_or("", "question_id", "conversation_id")
    problem = Problem(
        row.text("question"),
        tests := CheckTests("check", entry_point, checked, "\n".join(f"{name}()" for name in checks)),
        id=f"kodcode/{number}" if number else "",
        starter_code="",
        solutions=(solutions := texts([row.fields.get("solution")])),
        profile=profile_of(tests, *solutions),
        source=row.text_or("kodcode", "subset"),
        difficulty=difficulty(row.text_or("", "gpt_difficulty")),
    )
    return ReadProblem(problem, key=number)


def _function(
    row: RawRow, prompt: str, entry_point: str, source: str, invocation: str, solutions: list[str], id: str = ""
) -> ReadProblem:
    """Return a function to complete; the rest of its prompt (imports, helpers) is the preamble."""
    id = id or row.text_or("", "task_id")
    tests = CheckTests("check", entry_point, source, invocation, _without_function(prompt, entry_point))
    problem = Problem(
        prompt, tests, id=id, solutions=solutions, profile=profile_of(tests, *solutions), source="humaneval"
    )
    return ReadProblem(problem, key=id)


def _without_function(prompt: str, name: str) -> str:
    """Return the top-level code of a prompt without the function to complete and its decorators."""
    tree = tree_of(prompt) or tree_of(f"{prompt.rstrip()}\n    pass")
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            lines = prompt.split("\n")
            first = min([node, *node.decorator_list], key=lambda one: one.lineno).lineno
            return "\n".join(lines[: first - 1] + lines[node.end_lineno :])
    return prompt.partition(f"def {name}(")[0]


def profile_of(tests: CheckTests, *solutions: str) -> str:
    """Return the profile that tests, prompt and solutions need."""
    needs_numpy = any(_IMPORTS_NUMPY.search(text) for text in (tests.source, tests.preamble, *solutions))
    return _NUMPY if needs_numpy else _PLAIN


def _tolerance(row: RawRow) -> float:
    value = row.fields.get("atol")
    return float(value) if isinstance(value, int | float) else 0.0


def _docstring_or(prompt: str) -> str:
    """Return the text of a docstring without the assertion at its end, or another prompt as it is."""
    text = prompt.strip()
    return text.strip('"').partition("\nassert ")[0].strip() if text.startswith('"""') else text


def tested_function(source: str) -> str:
    """Return the first name that is called and not bound in the source, before names that are used otherwise.

    Raises UnusableRow: there is none (`no_function`).
    """
    tree = tree_of(source)
    nodes = list(ast.walk(tree)) if tree else []
    bound = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    names = [
        (node.id in dir(builtins), id(node) not in called, node.lineno, node.col_offset, node.id)
        for node in nodes
        if isinstance(node, ast.Name) and node.id not in bound
    ]
    if not names or (min(names)[0] and min(names)[1]):
        raise UnusableRow("no_function", "the tests call no function")
    return min(names)[-1]


_SHIM = Path(__file__).with_name("pytest_shim.txt").read_text("utf-8")
"""Replacement of `pytest.raises` and `pytest.approx`, since cells do not have pytest."""


def _imported_from_solution(tree: ast.Module) -> list[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "solution"]
    return [alias.name for node in imports for alias in node.names if alias.name != "*"]


def _without_pytest(source: str, tree: ast.Module) -> str:
    """Return test code without its imports of the solution and of pytest."""
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pytest"
    }
    named = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "pytest"]
    if (more := used - {"raises", "approx"}) or named:
        raise UnusableRow("needs_pytest", f"the tests use pytest.{min(more) if more else named[0].names[0].name}")
    takes = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    if any(node.args.args or node.decorator_list for node in takes):
        raise UnusableRow("needs_pytest", "a test has parameters or decorators")
    lines = source.split("\n")
    for node in ast.walk(tree):
        if _is_import_of(node, "solution") or _is_import_of(node, "pytest"):
            assert isinstance(node, ast.Import | ast.ImportFrom)
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = " " * node.col_offset + "pass"
    return (_SHIM if used else "") + "\n".join(lines)


def _is_import_of(node: ast.AST, module: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == module
    return isinstance(node, ast.Import) and [alias.name for alias in node.names] == [module]


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
