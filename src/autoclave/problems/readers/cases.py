"""Convert inputs and outputs of sets into tests: standard input or calls.

Sets write them as strings, lists of lines, values, JSON in strings, or outputs in a list of one element. Tests with the
name of a function are calls.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from autoclave.core import CallCase, CallTests, StdinCase, StdinTests
from autoclave.core.json import shown
from autoclave.problems.readers.row import HugeInteger, UnusableRow, parsed, unix_lines, value_of_text, wrong_type

_CALLED = ("function_call", "functional", "call_based")
_READING = ("stdin", "stdin_stdout", "standard_input")


def columns_as_tests(value: Any, starter_code: str, solutions: Sequence[str], name: str = "") -> StdinTests | CallTests:
    """Convert `{"inputs": [...], "outputs": [...], "fn_name"}`, as in APPS; `name` is used without fn_name.

    Raises UnusableRow: another form, no tests, different numbers of inputs and outputs, or unsuitable values.
    """
    columns = parsed(value, "tests")
    if not isinstance(columns, Mapping):
        raise wrong_type("tests", columns, "an object with inputs and outputs")
    fields = cast("Mapping[str, Any]", columns)
    inputs, outputs = (_column(fields, *names) for names in (("inputs", "input"), ("outputs", "output")))
    if len(inputs) != len(outputs):
        raise UnusableRow("uneven_tests", f"{len(inputs)} inputs and {len(outputs)} outputs")
    if not inputs:
        raise UnusableRow("no_tests", "the list of inputs is empty")
    function = fields.get("fn_name") or name
    if not function:
        return stdin_tests(zip(inputs, outputs, strict=True))
    is_plain = all(isinstance(one, str) for one in (*inputs, *outputs))  # LiveCodeBench's form, which wraps nothing
    if all(isinstance(one, str) for one in inputs):  # as PRIME, verl and LiveCodeBench read them
        inputs, outputs = [_arguments_in_lines(one) for one in inputs], _values(outputs)
    arguments = [_arguments(one) for one in inputs]
    return call_tests(str(function), arguments, outputs, starter_code, solutions, is_wrapped=not is_plain)


def records_as_tests(value: Any, starter_code: str, solutions: Sequence[str], name: str = "") -> StdinTests | CallTests:
    """Convert a list of `{"input", "output", "type" or "testtype", "fn_name"}`; `name` is used without fn_name.

    Raises UnusableRow: another form, no tests, tests of two kinds, or unsuitable values.
    """
    records = parsed(value, "tests")
    if not isinstance(records, list) or not all(isinstance(one, Mapping) for one in cast("list[Any]", records)):
        raise wrong_type("tests", records, "a list of objects with input and output")
    cases = cast("list[Mapping[str, Any]]", records)
    if not cases:
        raise UnusableRow("no_tests", "the list of tests is empty")
    for number, case in enumerate(cases):
        if "input" not in case or "output" not in case:
            raise UnusableRow("missing_field", f"tests[{number}] has no input or no output")
    kinds = {str(case.get("type") or case.get("testtype") or "") for case in cases}
    if len(kinds) > 1:
        raise UnusableRow("mixed_tests", f"tests of several kinds: {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    functions = {found for case in cases if (found := _function_of(case))} or {name} - {""}
    if kind in _READING or (not kind and not functions):
        return stdin_tests((case["input"], case["output"]) for case in cases)
    if kind and kind not in _CALLED:
        raise UnusableRow("unknown_tests", f"type of tests = {shown(kind)}: must be one of {_CALLED + _READING}")
    if len(functions) != 1:
        raise UnusableRow("no_function", f"calls of {len(functions)} functions: must be one")
    lines = kind == "functional"
    inputs = [_arguments_in_lines(case["input"]) if lines else _arguments(case["input"]) for case in cases]
    outputs = _values([case["output"] for case in cases])
    return call_tests(functions.pop(), inputs, outputs, starter_code, solutions, is_wrapped=not lines)


def _function_of(case: Mapping[str, Any]) -> str:
    """Return the function of a record; rLLM keeps LiveCodeBench's in metadata of each record."""
    metadata = cast("Mapping[str, Any]", case.get("metadata") if isinstance(case.get("metadata"), Mapping) else {})
    return str(case.get("fn_name") or metadata.get("func_name") or "")


def stdin_tests(cases: Iterable[tuple[Any, Any]]) -> StdinTests:
    """Return tests on standard input.

    Raises UnusableRow: an input or output is neither a string nor a list of lines.
    """
    found = [StdinCase(_as_text(one, "input"), _as_text(other, "output")) for one, other in cases]
    if not found:
        raise UnusableRow("no_tests", "the list of tests is empty")
    if not any(case.output.strip() for case in found):
        raise UnusableRow("no_outputs", "no test expects any output")
    return StdinTests("stdin", found)


def call_tests(
    name: str,
    arguments: Sequence[list[Any]],
    outputs: Sequence[Any],
    starter_code: str,
    solutions: Sequence[str],
    *,
    is_wrapped: bool = True,
) -> CallTests:
    """Return calls of a function, or of a method of `Solution` if the code defines that class.

    With `is_wrapped` outputs may be in lists of one element each, as in APPS and sets derived from it.

    Raises UnusableRow: a value has too many digits, or the name is not valid.
    """
    entry_point = _entry_point(name, starter_code, solutions)
    for value in (*arguments, *outputs):
        if _has_huge_integer(value):
            raise UnusableRow("huge_integer", "an integer has more digits than Python reads (4300)")
    if is_wrapped and _are_wrapped(outputs, _returned(name, (starter_code, *solutions))):
        outputs = [output[0] for output in outputs]
    return CallTests("call", entry_point, [CallCase(*case) for case in zip(map(list, arguments), outputs, strict=True)])


def _column(fields: Mapping[str, Any], *names: str) -> list[Any]:
    name = next((name for name in names if name in fields), None)
    if name is None:
        raise UnusableRow("missing_field", f"tests have no field {names[0]}")
    if not isinstance(fields[name], list):
        raise wrong_type(name, fields[name], "a list")
    return cast("list[Any]", fields[name])


def _as_text(value: Any, what: str) -> str:
    """Return a string as it is, a list as lines, a list in it as the words of a line, a number as digits."""
    if isinstance(value, HugeInteger):
        return str(value)
    if isinstance(value, str):
        return unix_lines(value)
    if isinstance(value, list):
        return "\n".join(_line(line, what).rstrip("\n") for line in cast("list[Any]", value)) + "\n"
    return _line(value, what)


def _line(value: Any, what: str) -> str:
    if isinstance(value, list):
        return " ".join(_line(word, what) for word in cast("list[Any]", value))
    if isinstance(value, str):
        return unix_lines(value)
    if isinstance(value, bool | int | float):
        return str(value)
    raise wrong_type(what, value, "text or a list of lines")


def _arguments(value: Any) -> list[Any]:
    """Return the arguments of a call: from a list, from one in JSON, or from one argument per line."""
    if isinstance(value, str):
        try:
            value = value_of_text(value)
        except ValueError:
            return _arguments_in_lines(value)
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _arguments_in_lines(value: Any) -> list[Any]:
    """Return the arguments of a call, one JSON value per line."""
    if not isinstance(value, str):
        raise wrong_type("input", value, "text with a JSON value on each line")
    return [parsed(line, "input") for line in value.split("\n") if line.strip()]


def _values(outputs: Sequence[Any]) -> list[Any]:
    """Parse all outputs as JSON; return them unchanged if one of them is not JSON."""
    try:
        return [value_of_text(output) for output in outputs]
    except (ValueError, TypeError):
        return list(outputs)


_SOLUTION = re.compile(r"^class Solution\b", re.MULTILINE)


def _entry_point(name: str, starter_code: str, solutions: Sequence[str]) -> str:
    code = starter_code if name in starter_code else next(iter(solutions), "")
    entry_point = f"Solution.{name}" if _SOLUTION.search(code) and not name.startswith("Solution.") else name
    if not all(part.isidentifier() for part in entry_point.split(".")):
        raise UnusableRow("no_function", f"fn_name = {shown(name)}: must be the name of a function")
    return entry_point


def _has_huge_integer(value: Any) -> bool:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, HugeInteger):
            return True
        if isinstance(part, list):
            pending.extend(cast("list[Any]", part))
        elif isinstance(part, dict):
            pending.extend(cast("dict[Any, Any]", part).values())
    return False


def _are_wrapped(outputs: Sequence[Any], returned: str) -> bool:
    """Return whether the set wraps all outputs into lists of one element, which the function itself does not return.

    The nesting of the return annotation decides; without an annotation such lists count as wrapping.
    """
    lists = [cast("list[Any]", output) for output in outputs if isinstance(output, list)]
    if len(lists) != len(outputs) or any(len(output) != 1 for output in lists):
        return False
    if not returned:
        return True
    return max(map(_depth, lists)) > len(re.findall(r"\b(?:list|List|tuple|Tuple|Sequence|Iterable)\b", returned))


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, cast("list[Any]", value)), default=0) if isinstance(value, list) else 0


def _returned(name: str, sources: Iterable[str]) -> str:
    """Return the return annotation of a function of this name, in the first source that has one."""
    pattern = re.compile(rf"def\s+{re.escape(name.rpartition('.')[2])}\s*\([^)]*\)\s*->\s*([^:]+?)\s*:(?:\s|$)")
    for source in sources:
        if found := pattern.search(source):
            return found[1]
    return ""
