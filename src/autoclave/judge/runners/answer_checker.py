r"""Compare an answer with the expected one, by the comparator that the content names: `math` or `value`.

The expected answer comes first and is read; then this side says `ready`, and only then the answer arrives, so whatever
fails afterwards failed on that. One word goes back: `true` or `false`; none when something is raised. Both texts are
data: where sympy would run what it made of a text, only arithmetic with plain numbers passes. The texts of `frames`,
`python_program` and `failure` stand before this text; this `prepare` and `run` take the place of theirs.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

import ast
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame, send_frame

_ARITHMETIC = re.compile(r"from sympy import \*|(?:Integer|Float|Rational|[0-9\s().,'+\-*/])*")
"""What sympy compiles to read a number: an import of its own, then the number in words such as `Integer (7 )`."""


class CodeRefusedError(Exception):
    """A text was about to be compiled."""


def prepare(content: bytes, _place: Any) -> Any:
    """The comparator: a function that reads a text, and one that compares what was read."""
    return {"math": Mathematics, "value": PythonValue}[content.decode("ascii")]


def run(test: Any) -> None:
    """Compare the one answer and leave the process. Does not return."""
    try:
        comparator = test.program()
        expected = comparator.expected(receive_frame().decode("utf-8", "surrogatepass"))
        send_frame(b"ready")
        passed = comparator.matches(expected, receive_frame().decode("utf-8", "replace"))
    except BaseException as error:  # noqa: BLE001  whatever it is, it is how the comparison ended
        test.tell(account_of(error))
        os._exit(1)
    send_frame(b"true" if passed is True else b"false")
    os._exit(0)


class Mathematics:
    """Equal as math-verify says. Its own time limits are off: those of the cell are enforced from outside."""

    def __init__(self) -> None:
        self._library: Any = importlib.import_module("math_verify")
        sys.addaudithook(_refuse_code)

    def expected(self, text: str) -> "list[Any]":
        """What the text means; raises ValueError if that is nothing."""
        found = self._read(text)
        if not found:
            raise ValueError(text)
        return found

    def matches(self, expected: "list[Any]", text: str) -> bool:
        """Whether the text means the same."""
        return bool(self._library.verify(expected, self._read(text), timeout_seconds=None))

    def _read(self, text: str) -> "list[Any]":
        return self._library.parse(f"\\boxed{{{text}}}", parsing_timeout=None)


class PythonValue:
    """Equal literals of Python, of the same types throughout."""

    def expected(self, text: str) -> Any:
        """The value; raises what `literal_eval` raises."""
        return ast.literal_eval(text.strip())

    def matches(self, expected: Any, text: str) -> bool:
        """Whether the text is the same value; one that is no value is not."""
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, TypeError, SyntaxError):
            return False
        return _spelt(value) == _spelt(expected)


def _spelt(value: Any) -> str:
    """The one spelling of a value: sets and dicts in one order, and every type told."""
    if isinstance(value, dict):
        items = sorted(f"{_spelt(key)}:{_spelt(part)}" for key, part in value.items())
    elif isinstance(value, set):
        items = sorted(map(_spelt, value))
    elif isinstance(value, list | tuple):
        items = list(map(_spelt, value))
    else:
        return repr(value)
    return f"{type(value).__name__}({','.join(items)})"


def _refuse_code(event: str, arguments: "tuple[Any, ...]") -> None:
    """Raise when a text is compiled that is neither a module of a file nor arithmetic."""
    if event != "compile":
        return
    source, name = arguments
    if isinstance(name, bytes | str) and os.fsdecode(name).startswith("/"):
        return  # a module that is imported only now
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    if isinstance(text, str) and not _ARITHMETIC.fullmatch(text):
        raise CodeRefusedError(name)
