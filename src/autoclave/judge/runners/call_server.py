"""Call one function of the program and send back what it returns. One call per process, one frame each way.

A frame is four bytes of length, big-endian, and plain data. The request is `{"entry_point", "preamble", "arguments"}`,
the answer `["value", result]`, `["not plain", type]` or `["error", account]`. The program runs first, as a module that
is not `__main__`; what it prints goes to its own streams. The texts of `plain_data`, `frames`,
`python_program`, `failure` and `entry_point` stand before this text.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import NotPlainError, decode, encode
    from autoclave.judge.runners.entry_point import entry_point
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.frames import receive_frame, send_frame

_MODULE = "solution"
_SAMPLE = """
class Solution:
    def scaled(self, values, factor):
        return [value * factor for value in values]
"""


def warm_up() -> "tuple[bytes, bytes, bytes]":
    """A program and the call of it."""
    request = encode({"entry_point": "Solution.scaled", "preamble": "", "arguments": [[1, 2.5, "text"], 2]})
    return _SAMPLE.encode(), b"", len(request).to_bytes(4, "big") + request


def run(test: Any) -> None:
    """Serve the one call and leave the process. Does not return."""
    request = decode(receive_frame())
    try:
        result = _call(test, request)
    except BaseException as error:  # noqa: BLE001  any exception ends the call
        account = account_of(error)
        test.report(account)
        send_frame(encode(["error", account]))
        os._exit(1)
    try:
        answer = b'["value",%b]' % encode(result, 1)
    except NotPlainError as error:
        answer = encode(["not plain", str(error)])
    except BaseException as error:  # noqa: BLE001
        test.report(account_of(error))
        os._exit(1)
    send_frame(answer)
    os._exit(0)


def _call(test: Any, request: Any) -> Any:
    return _load(test, request)(*request["arguments"])


def _load(test: Any, request: Any) -> Any:
    """Run preamble and program; the function to call."""
    namespace = test.main.__dict__
    namespace["__name__"] = _MODULE
    sys.modules[_MODULE] = test.main
    if request["preamble"]:
        exec(compile(request["preamble"], "preamble.py", "exec", dont_inherit=True), namespace)
    exec(test.program.code, namespace)
    return entry_point(namespace, request["entry_point"])
