"""Run the program as a script: `__main__`, real standard streams, exit code as Python gives it.

`test` is what the cell hands over: `main` (the module, where the profile's preamble has run), `program` (compiled),
`source`, and `tell` (leave an account for messages). The text of `failure` stands before this text.
"""

import atexit
import gc
import io
import linecache
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.failure import PROGRAM_FILE, account_of


def run(test: Any) -> None:
    """Run the program to its end and leave the process. Does not return."""
    namespace = test.main.__dict__
    namespace["__name__"] = "__main__"
    namespace["__file__"] = PROGRAM_FILE
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
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _report(test: Any, error: BaseException) -> None:
    """Say on standard error what Python would, and in the account what kind of failure it was."""
    test.tell(account_of(error))
    linecache.cache[PROGRAM_FILE] = (len(test.source), None, test.source.splitlines(keepends=True), PROGRAM_FILE)
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != PROGRAM_FILE:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _wind_down(test: Any, code: int) -> int:
    """What Python does at its end, as far as a program can tell: threads, exit handlers, finalizers, flushing."""
    end_threads: Any = getattr(threading, "_shutdown", None)
    run_exit_handlers: Any = getattr(atexit, "_run_exitfuncs", None)
    is_flushed = True
    try:
        end_threads()
        run_exit_handlers()
        is_flushed = _flush(sys.stdout, sys.stderr)  # a stream of the program's own may need the program's names
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        test.forget_program()
        gc.collect()
    except BaseException:  # noqa: BLE001  as the interpreter does: said on standard error, the exit code stays
        traceback.print_exc()
    writers = [o for o in gc.get_objects() if issubclass(type(o), io.TextIOWrapper | io.BufferedWriter)]
    is_flushed = _flush(*writers, sys.__stdout__, sys.__stderr__) and is_flushed
    return code if is_flushed else code or 120


def _flush(*streams: Any) -> bool:
    """Whether all that are open could be flushed; one that cannot is a program's own, or its reader is gone."""
    succeeded = True
    for stream in streams:
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:  # noqa: BLE001  whatever a stream of the program's own raises
            succeeded = False
    return succeeded
