"""The cell of a program under a check: run the program, then serve the requests of the check until the judge ends it.

The content is the JSON object `{"preamble", "program"}`. Of the check, this cell receives only the arguments of calls
and the names that the check uses. The texts of the marshalling modules, `python_program`, `failure`, `peer` and
`entry_point` stand before this text.
"""
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import json
import os
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.decoder import Decoder
    from autoclave.judge.runners.entry_point import entry_point
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.marshalling import PartEncoder
    from autoclave.judge.runners.peer import CALL, REQUEST, Peer, framed, remade
    from autoclave.judge.runners.python_program import PythonProgram

_MODULE = "solution"
_SAMPLE = """
def scaled(values, factor=1):
    if isinstance(values, list):
        return [value * factor for value in values]
    return values
"""
_SAMPLE_ARGUMENTS = [[[1, 2], 3], [[0.5, -1.5], 2], ["text"], [{"tuple": [1, "a"]}], [{"dict": ["key", [True, None]]}]]
_NUM_SAMPLE_ROUNDS = 2
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes)


class CandidateProgram:
    """The program and the preamble of its problem, compiled."""

    def __init__(self, preamble: str, program: str) -> None:
        self.program = PythonProgram(program.removeprefix("\ufeff"))
        self.preamble = compile(preamble, "preamble.py", "exec", dont_inherit=True)


def warm_up() -> "tuple[bytes, bytes, bytes]":
    """Return a program and the requests of a check."""
    begin = [["begin", "scaled", [], False], [], []]
    calls = [[["call", 0, []], arguments, []] for arguments in _SAMPLE_ARGUMENTS * _NUM_SAMPLE_ROUNDS]
    frames = [framed(REQUEST, json.dumps(begin).encode()), *(framed(CALL, json.dumps(call).encode()) for call in calls)]
    return json.dumps({"preamble": "", "program": _SAMPLE}).encode(), b"", b"".join(frames)


def prepare(content: bytes, _place: Any) -> CandidateProgram:
    """Return the program; raises what `compile` raises."""
    return CandidateProgram(**json.loads(content))


def run(test: Any) -> None:
    """Serve the check until the judge ends the cell. Does not return."""
    Candidate(test).converse()


def _is_immutable(value: Any) -> bool:
    return type(value) in _IMMUTABLE or (type(value) is tuple and all(map(_is_immutable, value)))


class _Exported:
    """Exports an object of any type, so that the check uses even a builtin type by calls of the program."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Candidate(Peer):
    """The program's side."""

    def __init__(self, test: Any) -> None:
        super().__init__()
        self._test = test
        self._late_errors: dict[int, Exception] = {}

    def converse(self) -> None:
        with self._channel_lock:
            while True:
                self.answer(*self.channel.receive())

    def serve(self, kind: bytes, request: "Decoder") -> "tuple[list[Any], Decoder | None]":
        request_name, *head = request.head
        if kind == CALL:
            number, names = head
            num_args = len(request.values) - len(names)
            kwargs = dict(zip(names, request.values[num_args:], strict=True))
            result = self.exported_object(number)(*request.values[:num_args], **kwargs)
            return [result], request if self.copies_back else None
        return [getattr(self, f"_{request_name}")(*head, *request.values)], None

    def _begin(self, path: str, names: "list[str]", copies_back: bool) -> "list[Any]":
        """Run the program; return the entry point and those names of the check that the program defines."""
        namespace = self._test.main.__dict__
        namespace["__name__"] = _MODULE
        sys.modules[_MODULE] = self._test.main
        exec(self._test.program.preamble, namespace)
        self.register_classes(namespace, self._test.program.preamble)
        exec(self._test.program.program.code, namespace)
        self._register_redefinitions(namespace)
        self.copies_back = copies_back
        found = {name: namespace[name] for name in names if name in namespace}
        exported = {name: _Exported(value) if callable(value) else value for name, value in found.items()}
        return [_Exported(entry_point(namespace, path)), exported]

    def _register_redefinitions(self, namespace: "dict[str, Any]") -> None:
        """Register classes of the preamble that the program defines again."""
        for name in self.classes:
            kind = namespace.get(name)
            if isinstance(kind, type):
                self.classes[name] = kind
                self.names_of_classes[kind] = name
                if issubclass(kind, Exception):
                    self.exceptions[kind.__name__] = kind

    def _get(self, number: int, name: str) -> Any:
        return getattr(self.exported_object(number), name)

    def _set(self, number: int, name: str, value: Any) -> None:
        setattr(self.exported_object(number), name, value)

    def _next(self, number: int, count: int) -> "tuple[Any, ...]":
        """Return whether the iterator is exhausted, its return value, and the next items.

        Stops at a mutable item, which is marshalled before the iterator goes on.
        """
        if number in self._late_errors:
            raise self._late_errors.pop(number)
        items: list[Any] = []
        iterator = self.exported_object(number)
        try:
            while len(items) < count:
                items.append(next(iterator))
                if not _is_immutable(items[-1]):
                    break
        except StopIteration as stop:
            return (True, stop.value, *items)
        except Exception as error:
            if not items:
                raise
            self._late_errors[number] = error
        return (False, None, *items)

    def exported(self, value: Any, encoder: "PartEncoder", depth: int) -> Any:
        return super().exported(value.value if type(value) is _Exported else value, encoder, depth)

    def kind_of_export(self, value: Any) -> str:
        if type(value) is types.GeneratorType:
            return "generator"
        if hasattr(type(value), "__next__"):
            return "iterator"
        return "function" if callable(value) else "object"

    def rebuilt(self, error: "Decoder") -> BaseException:
        return remade(self.exceptions[error.head[1]], error)

    def abort(self, reason: str) -> Any:
        os._exit(1)

    def fail(self, error: BaseException) -> Any:
        self._test.report(account_of(error))
        os._exit(1)
