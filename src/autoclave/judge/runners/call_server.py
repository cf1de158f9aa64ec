"""Call one function of the program and send back what it returns. One call per process, one frame each way.

A frame is four bytes of length, big-endian, and plain data. The request is `{"entry_point", "preamble", "arguments"}`,
the answer `["value", result]`, `["not plain", type]` or `["error", account]`. The program runs first, as a module that
is not `__main__`; what it prints goes to its own streams. The text of `plain_data` stands before this text.
"""

import errno
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.plain_data import NotPlainError, decode, encode

_CHANNEL = 3
_MODULE = "solution"
_LIMITS_BY_ERRNO = {errno.ENOSPC: "disk", errno.EDQUOT: "disk", errno.EFBIG: "disk", errno.EAGAIN: "processes"}


def run(test: Any) -> None:
    """Serve the one call and leave the process. Does not return."""
    request = decode(_receive())
    try:
        result = _call(test, request)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is how the call ended
        account = _account(error)
        test.tell(account)
        _send(["error", account])
        os._exit(1)
    try:
        answer = encode(["value", result])
    except NotPlainError as error:
        answer = encode(["not plain", str(error)])
    except BaseException as error:  # noqa: BLE001
        test.tell(_account(error))
        os._exit(1)
    _send_bytes(answer)
    os._exit(0)


def _call(test: Any, request: Any) -> Any:
    namespace = test.main.__dict__
    namespace["__name__"] = _MODULE
    sys.modules[_MODULE] = test.main
    exec(compile(request["preamble"], "preamble.py", "exec", dont_inherit=True), namespace)
    exec(test.program, namespace)
    return _entry_point(namespace, request["entry_point"])(*request["arguments"])


def _entry_point(namespace: "dict[str, Any]", path: str) -> Any:
    """`f`: the function, or else the method of a fresh Solution; `Solution.f`: that method; `A.B.f` likewise."""
    owner, _, name = path.rpartition(".")
    if not owner:
        if name not in namespace and "Solution" in namespace:
            return getattr(namespace["Solution"](), name)
        if name not in namespace:
            raise NameError(f"no function {name}")
        return namespace[name]
    first, *rest = owner.split(".")
    scope = namespace[first]
    for part in rest:
        scope = getattr(scope, part)
    return getattr(scope(), name)


def _account(error: BaseException) -> str:
    kind = "memory" if isinstance(error, MemoryError) else "-"
    if isinstance(error, OSError):
        kind = _LIMITS_BY_ERRNO.get(error.errno or 0, "-")
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        kind = "processes"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "program.py"]
    return f"{kind} {type(error).__name__} {lines[-1] if lines else 0}"


def _receive() -> bytes:
    return _receive_exactly(int.from_bytes(_receive_exactly(4), "big"))


def _receive_exactly(size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(_CHANNEL, min(size, 1 << 20))
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(answer: Any) -> None:
    _send_bytes(encode(answer))


def _send_bytes(content: bytes) -> None:
    left = memoryview(len(content).to_bytes(4, "big") + content)
    while left:
        left = left[os.write(_CHANNEL, left) :]
