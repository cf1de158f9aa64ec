"""Run pieces of Python one after the other in one namespace, as the cells of a notebook, and report on each.

The order is the frame of `free_run`; the answer is `{"cells": [...], "files": {path: bytes}}`, where a cell is
`{"stdout", "stderr", "value", "error": [name, text, traceback] or None}`. A cell that fails does not keep the others
from running. What is written to the descriptors themselves stays with the streams of the process.

The texts of `plain_data`, `frames`, `python_program`, `failure`, `script` and `free_run` stand before this text, whose
`prepare` and `run` replace theirs.
"""

import io
import json
import linecache
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.free_run import (
        _VALUE,  # pyright: ignore[reportPrivateUsage]
        read_files,
        receive_order,
        report_results,
        text_of,
        with_value_kept,
        write_files,
    )
    from autoclave.judge.runners.script import _wind_down  # pyright: ignore[reportPrivateUsage]

_STREAM_CHARS = 1 << 20


class Notebook:
    """The sources of the cells. `has_finalizers`: the end may run code of theirs."""

    has_finalizers = True

    def __init__(self, cells: "list[str]") -> None:
        self.cells = cells


class CellStream(io.StringIO):
    """Keeps the beginning of its output and counts the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._num_left_out = 0

    def write(self, text: str) -> int:
        room = _STREAM_CHARS - self.tell()
        super().write(text[:room])
        self._num_left_out += max(len(text) - room, 0)
        return len(text)

    def text(self) -> str:
        note = f"\n[{self._num_left_out} more characters]\n" if self._num_left_out else ""
        return self.getvalue() + note


def prepare(content: bytes, _place: Any) -> Notebook:
    return Notebook(json.loads(content))


def run(test: Any) -> None:
    """Run all cells, report, and leave the process. Does not return."""
    order = receive_order()
    write_files(order["files"])
    namespace = test.main.__dict__
    namespace["__name__"] = "__main__"
    cells: list[Any] = []
    for number, source in enumerate(test.program.cells):
        cells.append(_run_cell(source, f"<cell {number + 1}>", namespace))
    code = _wind_down(test, 0)
    report_results({"cells": cells, "files": read_files(order["fetch"], order["limit"])})
    os._exit(code)


def _run_cell(source: str, file: str, namespace: "dict[str, Any]") -> "dict[str, Any]":
    streams = sys.stdout, sys.stderr
    out, err = CellStream(), CellStream()
    sys.stdout, sys.stderr = out, err
    failure: Any = None
    try:
        exec(with_value_kept(source, file), namespace)
    except BaseException as error:  # noqa: BLE001  any exception ends the cell
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        failure = _result(error, file)
    value = namespace.pop(_VALUE, None)
    text = None if value is None or failure else text_of(value)
    sys.stdout, sys.stderr = streams
    return {"stdout": out.text(), "stderr": err.text(), "value": text and text[:_STREAM_CHARS], "error": failure}


def _result(error: BaseException, file: str) -> "list[Any]":
    """Name, text and traceback, from the line of the cell on."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    try:
        return [type(error).__name__, str(error), traceback.format_exception(type(error), error, trace)]
    except BaseException:  # noqa: BLE001  a class of the program's own
        return [type(error).__name__, "", []]
