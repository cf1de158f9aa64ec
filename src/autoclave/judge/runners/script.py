"""Run the program as a script: `__main__`, real standard streams, exit code as Python gives it.

`test` is what the cell hands over: `main` (the module, where the profile's preamble has run), `program`, and
`report` (leave an account for messages). The texts of `python_program` and `failure` stand before this text.
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
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.python_program import PROGRAM_FILE

_SAMPLE = """
import sys
def scaled(numbers, factor=1):
    return [number * factor for number in numbers]
count, factor = map(int, input().split())
numbers = list(map(int, input().strip().split()))
numbers.sort()
numbers.append(sum(numbers))
found = {}
for index, number in enumerate(scaled(numbers, factor)):
    found[number] = found.get(number, 0) + index
print(*numbers, sep=" ", end="\\n")
print(" ".join(str(number) for number in sorted(found)), len(found), max(numbers))
print(f"{count} {factor:.2f}")
for line in sys.stdin:
    sys.stdout.write(line.rstrip("\\n").upper() + "\\n")
"""
_SAMPLE_INPUT = b"3 2\n3 4 5\nlast\nlines\n"
_STDOUT, _STDERR = sys.stdout, sys.stderr
_num_exit_handlers: Any = getattr(atexit, "_ncallbacks")  # noqa: B009  it is not in the stubs


def warm_up() -> tuple[bytes, bytes, bytes]:
    """Return a program that does what programs commonly do, its input, and nothing for the channel."""
    return _SAMPLE.encode(), _SAMPLE_INPUT, b""


def run(test: Any) -> None:
    """Run the program to its end and leave the process. Does not return."""
    code = _execute(test)
    if code == 0 and not test.program.has_finalizers and _has_nothing_to_do() and _flush(_STDOUT, _STDERR):
        os._exit(0)
    os._exit(_wind_down(test, code))


def _has_nothing_to_do() -> bool:
    """Return whether the streams are unchanged and no exit handler is registered: then flushing them is enough."""
    return sys.stdout is _STDOUT and sys.stderr is _STDERR and _num_exit_handlers() == 0


def _execute(test: Any) -> int:
    """Run the program; its exit code so far."""
    namespace = test.main.__dict__
    namespace["__name__"] = "__main__"
    namespace["__file__"] = PROGRAM_FILE
    code = 1
    try:
        exec(test.program.code, namespace)
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException as error:  # noqa: BLE001  any exception ends the program
        _report(test, error)
    return code


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _report(test: Any, error: BaseException) -> None:
    """Print the traceback as Python would, and leave an account of the failure."""
    test.report(account_of(error))
    source = test.program.source
    linecache.cache[PROGRAM_FILE] = (len(source), None, source.splitlines(keepends=True), PROGRAM_FILE)
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != PROGRAM_FILE:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _wind_down(test: Any, code: int) -> int:
    """Finalize as Python does, as far as a program can observe: threads, exit handlers, finalizers, flushing.

    Waiting and collecting touch a hundred pages of memory; a program without finalizers skips them.
    """
    end_threads: Any = getattr(threading, "_shutdown", None)
    run_exit_handlers: Any = getattr(atexit, "_run_exitfuncs", None)
    is_thorough = test.program.has_finalizers
    is_flushed = True
    try:
        if is_thorough:
            end_threads()
        run_exit_handlers()
        is_flushed = _flush(sys.stdout, sys.stderr)  # a stream of the program may need the program's names
        if is_thorough:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            test.forget_program()
            gc.collect()
    except BaseException:  # noqa: BLE001  as the interpreter: a traceback, and the same exit code
        traceback.print_exc()
    if is_thorough:
        writers = [o for o in gc.get_objects() if issubclass(type(o), io.TextIOWrapper | io.BufferedWriter)]
        is_flushed = _flush(*writers) and is_flushed
    if is_thorough or sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        is_flushed = _flush(sys.__stdout__, sys.__stderr__) and is_flushed
    return code if is_flushed else code or 120


def _flush(*streams: Any) -> bool:
    """Flush the open streams; return False if one raises: a stream of the program, or one without a reader."""
    succeeded = True
    for stream in streams:
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:  # noqa: BLE001  streams of the program raise anything
            succeeded = False
    return succeeded
