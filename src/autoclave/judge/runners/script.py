"""Run the program as a script: `__main__`, real standard streams, exit code as Python gives it.

`test` is what the cell hands over: `main` (the module, where the profile's preamble has run), `program` (compiled),
`source`, and `tell` (leave an account for messages). The account of a failure is `<limit or -> <exception> <line>`.
"""

import atexit
import errno
import gc
import io
import linecache
import os
import sys
import threading
import traceback
from typing import Any

_LIMITS_BY_ERRNO = {errno.ENOSPC: "disk", errno.EDQUOT: "disk", errno.EFBIG: "disk", errno.EAGAIN: "processes"}


def run(test: Any) -> None:
    """Run the program to its end and leave the process. Does not return."""
    namespace = test.main.__dict__
    namespace["__name__"] = "__main__"
    namespace["__file__"] = "program.py"
    code = 1
    try:
        exec(test.program, namespace)
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is how the program ended
        _report(test, error)
    os._exit(_wind_down(test, code))


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _report(test: Any, error: BaseException) -> None:
    """Say on standard error what Python would, and in the account what kind of failure it was."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "program.py"]
    kind = "memory" if isinstance(error, MemoryError) else "-"
    if isinstance(error, OSError):
        kind = _LIMITS_BY_ERRNO.get(error.errno or 0, "-")
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        kind = "processes"
    test.tell(f"{kind} {type(error).__name__} {lines[-1] if lines else 0}")
    linecache.cache["program.py"] = (len(test.source), None, test.source.splitlines(keepends=True), "program.py")
    trace = error.__traceback__
    while trace and frames and trace.tb_frame.f_code.co_filename != "program.py":
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _wind_down(test: Any, code: int) -> int:
    """What Python does at its end, as far as a program can tell: threads, exit handlers, finalizers, flushing."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        test.forget_program()
        gc.collect()
    except BaseException:  # noqa: BLE001  as the interpreter does: said on standard error, the exit code stays
        traceback.print_exc()
    writers = [thing for thing in gc.get_objects() if isinstance(thing, io.TextIOWrapper | io.BufferedWriter)]
    for stream in (*writers, sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:  # noqa: BLE001  a stream of the program's own, or a reader that is gone
            code = code or 120
    return code
