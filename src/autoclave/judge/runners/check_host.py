"""The cell of a check: runs the test code of a problem, which reaches the program over the channel only.

The content is the JSON object `{"preamble", "source", "invocation", "entry_point", "unknown_names",
"mutates_arguments", "own_fields"}`. The program is asked for those of the unknown names that
neither Python nor the preamble defines, and that are not modules. The last frame, `END`, reports how the check ended:
`["passed" | "failed" | "program" | "violation" | "refused", account]`.
The texts of the marshalling modules, `python_program`, `failure` and `peer` stand before this text.
"""
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import builtins
import contextlib
import importlib
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.decoder import Decoder
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.marshalling import NotPlainError, PartEncoder
    from autoclave.judge.runners.peer import ANSWER, CALL, END, Handle, Peer, framed, remade

_MAX_ITEMS = 100_000
_USUAL_NAMES = {"np": "numpy"}
_NO_STOP = {"StopIteration": RuntimeError, "StopAsyncIteration": RuntimeError}
"""The classes that replace these, as in a generator: raised through `map`, these would end a loop over cases."""
_SAMPLE = """
def check(candidate):
    assert candidate([1, 2], 3) == [3, 6]
    assert candidate([0.5, -1.5], factor=2) == [1.0, -3.0], "scaled"
    assert abs(candidate(1.5) - 1.5) < 1e-6
    assert candidate("text") == "text"
    assert candidate((1, "a")) == (1, "a")
    assert candidate({"key": [True, None]}) == {"key": [True, None]}
"""
_SAMPLE_ANSWERS = [[3, 6], [1.0, -3.0], 1.5, "text", {"tuple": [1, "a"]}, {"dict": ["key", [True, None]]}]


class Check:
    """The test code, compiled, and the names that it uses and does not define."""

    def __init__(
        self,
        preamble: str,
        source: str,
        invocation: str,
        entry_point: str,
        unknown_names: "list[str]",
        *,
        mutates_arguments: bool,
        own_fields: "dict[str, list[str]]",
    ) -> None:
        self.preamble = compile(preamble, "preamble.py", "exec", dont_inherit=True)
        self.codes = [
            compile(source, "check.py", "exec", dont_inherit=True),
            compile(invocation, "invocation.py", "exec", dont_inherit=True),
        ]
        self.entry_point = entry_point
        self.unknown_names = unknown_names
        self.mutates_arguments = mutates_arguments
        self.own_fields = own_fields

    @property
    def own_names(self) -> "tuple[str, ...]":
        return ("candidate", self.entry_point.rpartition(".")[2])


def warm_up() -> "tuple[bytes, bytes, bytes]":
    """Return a check and the answers of a program."""
    content = {"preamble": "", "source": _SAMPLE, "invocation": "check(scaled)", "entry_point": "scaled"}
    answers = [[["value"], [[{"handle": ["mine", 0, "function"]}, {"dict": []}]], []]]
    answers += [[["value"], [value], []] for value in _SAMPLE_ANSWERS]
    frames = b"".join(framed(ANSWER, json.dumps(answer).encode()) for answer in answers)
    return (
        json.dumps(content | {"unknown_names": [], "mutates_arguments": False, "own_fields": {}}).encode(),
        b"",
        frames,
    )


def prepare(content: bytes, _place: Any) -> Check:
    """Return the check; raises what `compile` raises."""
    return Check(**json.loads(content))


def run(test: Any) -> None:
    """Run the check, report how it ended and leave the process. Does not return."""
    host = CheckHost()
    try:
        host.check(test.program, test.main.__dict__)
    except SystemExit as stop:
        host.end("failed" if stop.code else "passed", "- SystemExit 0")
    except BaseException as error:  # noqa: BLE001  any exception ends the check
        host.end_with(error)
    host.end("passed", "")


def _module_of(name: str) -> str:
    """Return the module of a name that a check uses without importing it; empty if there is no such module."""
    module = _USUAL_NAMES.get(name, name)
    return module if name in _USUAL_NAMES or module in sys.stdlib_module_names or module in sys.modules else ""


class CheckHost(Peer):
    """The check's side."""

    def __init__(self) -> None:
        super().__init__()
        self._has_failed = False
        self._last_error: tuple[BaseException | None, str] = (None, "")

    def check(self, check: Check, namespace: "dict[str, Any]") -> None:
        """Run preamble, source and invocation; raises what they raise."""
        namespace["__name__"] = "__main__"
        exec(check.preamble, namespace)
        self.register_classes(namespace, check.preamble)
        self.own_fields = check.own_fields
        unknown = [name for name in check.unknown_names if name not in namespace and not hasattr(builtins, name)]
        modules = {name: module for name in unknown if (module := _module_of(name))}
        for name, module in modules.items():
            with contextlib.suppress(ImportError):
                namespace[name] = importlib.import_module(module)
        unknown = [name for name in unknown if name not in modules]
        answer = self.request(["begin", check.entry_point, unknown, check.mutates_arguments])
        if type(answer) is not list or len(answer) != 2 or type(answer[1]) is not dict:
            self.abort("no entry point")
        candidate, found = answer
        self.copies_back = check.mutates_arguments
        namespace |= {name: found[name] for name in unknown if name in found}  # no other names
        namespace |= dict.fromkeys(check.own_names, candidate)
        for code in check.codes:
            exec(code, namespace)

    def end_with(self, error: BaseException) -> None:
        raised, account = self._last_error
        if error is raised:
            self.end("program", account)
        self.end("failed", account_of(error))

    def end(self, outcome: str, account: str) -> None:
        """Report to the judge alone how the check ended, and leave the process."""
        if outcome == "passed" and self._has_failed:
            outcome = "failed"
        self.channel.send(END, json.dumps([outcome, account]).encode("ascii"))
        os._exit(0)

    def serve(self, kind: bytes, request: "Decoder") -> "tuple[list[Any], Decoder | None]":
        if kind != CALL or request.head[0] != "call":
            self.abort("only functions can be used")
        _, number, names = request.head
        num_args = len(request.values) - len(names)
        kwargs = dict(zip(names, request.values[num_args:], strict=True))
        try:
            return [self.exported_object(number)(*request.values[:num_args], **kwargs)], None
        except AssertionError:
            self._has_failed = True  # also if the program catches it
            raise

    def kind_of_export(self, value: Any) -> str:
        if not callable(value):
            raise NotPlainError(type(value).__name__)
        return "function"

    def exported(self, value: Any, encoder: "PartEncoder", depth: int) -> Any:
        if hasattr(type(value), "__next__") and not isinstance(value, Handle):
            items = list(itertools.islice(value, _MAX_ITEMS + 1))
            if len(items) > _MAX_ITEMS:
                raise NotPlainError("an iterator without end")
            return {"iterator": encoder.parts(items, depth)}
        return super().exported(value, encoder, depth)

    def rebuilt(self, error: "Decoder") -> BaseException:
        """Return an exception of a class known here by name; `_last_error` marks it as the program's."""
        try:
            _, name, account, *_ = error.head
            made = remade(_NO_STOP.get(name) or self.exceptions.get(name, Exception), error)
        except Exception:  # noqa: BLE001  arguments that its class rejects
            made, account = Exception(), "-"
        self._last_error = (made, str(account))
        return made

    def abort(self, reason: str) -> Any:
        self.end("violation", reason)

    def refuse(self, reason: str) -> Any:
        self.end("refused", reason)

    def fail(self, error: BaseException) -> Any:
        self.end_with(error)
