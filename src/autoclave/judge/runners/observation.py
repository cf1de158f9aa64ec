"""The final variables of a function and of the main program, seen without slowing the program down.

A profile function is set only from the moment a function is called until its frame is there, which is its first
event. From then on nothing watches: the frame object is held, and a frame that is held keeps its variables when the
function returns or raises. No line and no inner call is ever traced, and the program's functions stay as they are.

The program can forge a trace; this code does not prevent that.
The texts of `plain_data`, `frames` and `traced_values` stand before this text.
"""

import types
from sys import setprofile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import encode
    from autoclave.judge.runners.frames import send_frame
    from autoclave.judge.traced_values import MAX_LIST_BYTES, MAX_RESULT_BYTES, MAX_VARIABLES, is_small, with_lists

_MAX_WRAPPERS = 100


class Observation:
    """Holds the variables of the last observed call as they were at its end.

    It adds no frame between the caller and the function, so that both see the frames of any other run.
    """

    def __init__(self) -> None:
        self._function: Any = None
        self._code: types.CodeType | None = None
        self._frame: Any = None
        self._values: dict[str, Any] = {}

    def await_call(self, function: Any, /) -> "dict[str, Any]":
        """Observe the next call of `function`, from its first event on. Returns empty options for use in the call."""
        if function is not self._function:
            self._function, self._code = function, _code_of(function)
        self._values, self._frame = {}, None
        if self._code is not None:
            setprofile(self._await_frame)
        return {}

    def returned(self, result: Any, /) -> Any:
        """Return `result`, the result of the observed call. Its inner calls, also of itself, are not observed."""
        if self._frame is None:
            setprofile(None)
        else:
            self._values = with_lists(self._frame.f_locals)
            self._frame = None  # objects of the function must not live longer than in other runs
        if type(result) is types.GeneratorType and result.gi_code is self._code:
            self._frame = result.gi_frame  # its body runs later; see `variables`
        return result  # pyright: ignore[reportUnknownVariableType]

    def variables(self) -> "dict[str, Any]":
        """Return the parameters and locals of the call, with those that inner functions use; of a generator as of now,
        of a call that raised as of its end.

        Without names of enclosing functions and names put into `locals()`.
        """
        setprofile(None)  # a call that raised before it began
        if self._code is None:
            return {}
        values = self._values if self._frame is None else with_lists(self._frame.f_locals)
        names = dict.fromkeys(self._code.co_varnames + self._code.co_cellvars)
        return {name: values[name] for name in names if name in values and not is_dunder(name)}

    def _await_frame(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is self._code:
            setprofile(None)
            self._frame = frame


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _code_of(function: Any) -> "types.CodeType | None":
    """Return the code of a function or method, below decorators with `__wrapped__`."""
    for _ in range(_MAX_WRAPPERS):
        function = getattr(function, "__func__", function)
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return function.__code__ if isinstance(function, types.FunctionType) else None


def report_trace(variables: "dict[str, Any]", *result: Any) -> None:
    """Send the account on the channel: variables, and the result if it is plain data within its limit."""
    pairs = [[name, value] for name, value in variables.items()]
    reported = [pair for pair in pairs if type(pair[1]) is not list]
    small = [pair for pair in reported if is_small(pair[1])][:MAX_VARIABLES]
    lists = [pair for pair in pairs if type(pair[1]) is list and len(encode(pair[1])) <= MAX_LIST_BYTES][:MAX_VARIABLES]
    account = {"variables": small, "lists": lists, "left_out": len(reported) - len(small)}
    if result and _is_short_plain_data(result[0]):
        account["result"] = [result[0]]
    send_frame(encode(account))


def _is_short_plain_data(value: Any) -> bool:
    try:
        return len(encode(value)) <= MAX_RESULT_BYTES
    except Exception:  # noqa: BLE001  not plain data, or a class of the program that raises
        return False
