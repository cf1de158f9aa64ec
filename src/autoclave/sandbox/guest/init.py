"""The first process of a cell: prepares the program, starts one process per test and cleans up after each.

It is the init of the cell's process namespace: orphans of a test become its children, and when it ends, the kernel
kills all others. No process in the cell may signal, trace or read it. It never sees test data: standard input and
frames go from the judge to the test by descriptor. The loop over tests is in `loops.py`.
"""

import json
import os
import types
from typing import Any, NoReturn

from .confinement import Confinement
from .loops import Loops
from .process import be_test


def be_first_process(socket: int, runner: Any, main: types.ModuleType, confinement: Confinement, loops: Loops) -> None:
    """Run the first process of a cell, and the process of each test. Ends the process."""
    try:
        content = loops.begin_cell(socket)
        try:
            program = runner.prepare(content, confinement.place)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            _report_error(socket, error)
        loops.serve_tests()
        be_test(runner, main, program, loops.report)  # only the process of a test comes here
    finally:
        os._exit(70)


def _report_error(socket: int, error: Exception) -> NoReturn:
    """Report the compile error, and wait for the judge to end the cell."""
    text = type(error).__name__
    line = None
    if isinstance(error, SyntaxError):
        text, line = f"{text}: {error.msg}", error.lineno
    answer = json.dumps({"compile_error": text, "line": line}).encode()
    os.write(socket, len(answer).to_bytes(4, "big") + answer)
    os.read(socket, 1)
    os._exit(0)
