"""Result of a traced run: the final values of a program's variables, as the program's own cell tells them.

Values are spelled as Python literals, so that 1, 1.0, True, "1" and None stay apart in every JSON library, integers
keep all digits and floats all bits. A trace explains a program; it never decides about one.
"""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, cast

from pydantic import ConfigDict

from autoclave.core.verdict import Fault

MAIN_PROGRAM = "<module>"
"""The `entry` of a program that is run as a whole."""

Primitive = bool | int | float | str | None
"""Values that a trace holds. Instances of subclasses are none of them."""

_NOT_FINITE: Mapping[str, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class TraceStatus(StrEnum):
    """Status of a traced run."""

    FINISHED = "finished"
    """The entry returned, or the main program ended with exit code 0. The values are final."""
    RAISED = "raised"
    """An exception or another exit code ended it, which `message` names. The values are those of that moment."""
    NO_VALUES = "no_values"
    """A limit, a signal, `os._exit` or a malformed account; `message` says which. There are no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The variables of one run of one program on one test. A line of a traces file.

    Either `status` is set and `fault` is None, or the other way round.

    Attributes:
        test: index of the test.
        entry: the function that was called, as the problem names it, or `<module>`.
        variables: name -> Python literal, in the order of the text. `f.name` is a local of the function `f` that the
            last statement of a main program calls.
        lists: the same of variables that are short lists of such values; training does not ask for these.
        left_out: how many variables of primitive type are missing because of their size or number.
        result: the literal of what the entry returned, or what the main program printed. None when there is none to
            tell: it did not return, or not plain data.
        is_result_whole: whether `result` is all of it. A long output is cut, a long returned value left out.
        message: how it ended if not `finished`, in the words of a verdict.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    format: Literal["autoclave-trace/1"] = "autoclave-trace/1"
    problem_id: str = ""
    id: str = ""
    test: int
    status: TraceStatus | None
    entry: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    lists: dict[str, str] = field(default_factory=dict[str, str])
    left_out: int = 0
    result: str | None = None
    is_result_whole: bool = False
    message: str = ""
    fault: Fault | None = None

    @property
    def values(self) -> dict[str, Primitive]:
        """The variables as Python values."""
        return {name: value_of(text) for name, text in self.variables.items()}


def literal(value: Any) -> str:
    """`value`, a builtin value or container of such, as Python spells it; sets in the order of their spelling.

    Raises ValueError: an integer has more digits than Python writes.
    """
    match value:
        case list():
            return f"[{_joined(value)}]"
        case tuple():
            parts = cast("tuple[Any, ...]", value)
            return f"({_joined(parts)}{',' if len(parts) == 1 else ''})"
        case dict():
            pairs = cast("dict[Any, Any]", value)
            return f"{{{', '.join(f'{literal(key)}: {literal(inner)}' for key, inner in pairs.items())}}}"
        case set() | frozenset():
            parts = cast("set[Any]", value)
            inner = f"{{{', '.join(sorted(map(literal, parts)))}}}" if parts else ""
            return inner if inner and isinstance(value, set) else f"{type(parts).__name__}({inner})"
        case _:
            return repr(value)


def value_of(text: str) -> Any:
    """The value that `literal` spelled as `text`, for primitive values and lists, tuples, dicts and sets of such.

    Raises ValueError: `text` is no such literal.
    """
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise ValueError(f"{text[:60]!r} is no literal") from None


def _joined(parts: Any) -> str:
    return ", ".join(map(literal, parts))
