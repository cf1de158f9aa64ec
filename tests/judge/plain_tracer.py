"""A program: what trusted programs leave behind, by `sys.settrace` in a plain process. It shares nothing with ours.

Reads JSON lines {"program", "entry", "arguments", "input"} and answers each with what it saw of primitive values:
{"globals": {...}, "frames": {function: {...}}, "ended": true}. Values are spelled by `repr`. Of functions that the
module itself calls, and of the entry, it keeps the variables of the last call. Each program has a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import threading
from typing import Any


def primitives(values: dict[str, Any]) -> dict[str, str]:
    """Those that a trace tells."""
    found = {}
    for name, value in values.items():
        if type(value) not in (int, float, str, bool, type(None)) or (name.startswith("__") and name.endswith("__")):
            continue
        is_large = (type(value) is int and abs(value) >= 10**1000) or (type(value) is str and len(value) > 1000)
        if not is_large:
            found[name] = repr(value)
    return found


def run(task: dict[str, Any]) -> dict[str, Any]:
    """What one program leaves."""
    frames: dict[str, dict[str, str]] = {}
    namespace: dict[str, Any] = {"__name__": "__main__", "math": math}
    before = set(namespace)
    wanted: list[Any] = []

    def trace(frame: Any, event: str, _: Any) -> Any:
        caller = frame.f_back.f_code.co_name if frame.f_back else ""
        is_wanted = caller == "<module>" and frame.f_back.f_globals is namespace
        if not is_wanted and frame.f_code not in wanted:
            return None
        if frame.f_code in wanted and any(above is frame.f_code for above in callers(frame)):
            return None  # of a recursion the outermost call

        def leave(inner: Any, what: str, _: Any) -> Any:
            if what == "return":
                frames[inner.f_code.co_name] = primitives(inner.f_locals)
            return leave

        return leave

    has_ended = True
    given = os.memfd_create("input")
    os.write(given, task["input"].encode())
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  it stays open as long as the process lives
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            code = compile(task["program"], "<program>", "exec")
            if not task["entry"]:
                sys.settrace(trace)
            try:
                exec(code, namespace)
            except SystemExit as error:
                has_ended = error.code in (None, 0)
            if task["entry"]:
                function = resolved(namespace, task["entry"])
                wanted.append(function.__code__)
                sys.settrace(trace)
                function(*task["arguments"])
        except Exception:  # noqa: BLE001  whatever a program raises
            has_ended = False
        finally:
            sys.settrace(None)
    left = {name: value for name, value in namespace.items() if name not in before}
    return {"globals": primitives(left), "frames": frames, "ended": has_ended}


def callers(frame: Any) -> Any:
    """The code of all frames above one."""
    above = frame.f_back
    while above is not None:
        yield above.f_code
        above = above.f_back


def resolved(namespace: dict[str, Any], entry: str) -> Any:
    """The function of a name such as `f` or `Solution.f`, or of a method of `Solution` that is named alone."""
    first, _, method = entry.partition(".")
    if not method and first not in namespace:
        first, method = "Solution", first
    return getattr(namespace[first](), method) if method else namespace[first]


def answer(task: dict[str, Any]) -> str:
    """What `run` returns, in a process of its own, on a thread with a deep stack; one that dies has not ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        thread = threading.Thread(target=lambda: os.write(writer, json.dumps(run(task)).encode()))
        thread.start()
        thread.join()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as reported:
        text = reported.read()
    os.waitpid(child, 0)
    return text or json.dumps({"globals": {}, "frames": {}, "ended": False})


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    sys.set_int_max_str_digits(0)
    threading.stack_size(512 << 20)
    for line in sys.stdin.read().splitlines():
        sys.stdout.write(answer(json.loads(line)) + "\n")
