"""Run cases of a check in two processes, as a judge does, and in one process of plain CPython.

The processes run the texts of the real runners without a sandbox; this module carries the frames between them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoclave.core import CheckTests
from autoclave.judge.kinds.check import _own_fields
from autoclave.judge.profiles import CANDIDATE, CHECK_HOST
from autoclave.sandbox import Runner

_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", ""), "OMP_NUM_THREADS": "1"}
_PROCESS = """
import builtins, os, sys, types
import numpy
content = open(sys.argv[1], "rb").read()
class Test:
    main = types.ModuleType("__main__")
    report = staticmethod(lambda account: sys.stderr.write(account))
Test.main.__dict__["__builtins__"] = builtins
runner = {"__name__": "runner"}
exec(compile(open(sys.argv[2]).read(), "runner.py", "exec"), runner)
Test.program = runner["prepare"](content, None)
runner["run"](Test)
"""
_RECORDER = """
import re
def recorded(number, make, probe):
    try:
        outcome = repr(probe(make()))
    except Exception as error:
        known = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ != "Own"]
        outcome = "raises " + known[0]
    with open(PATH, "a") as file:
        file.write(f"{number} {outcome!a}\\n")
"""
REFUSED = "refused"
"""The outcome of a case that ended the check: the result of the program cannot be marshalled."""


@dataclass(frozen=True)
class Case:
    """The lines of a function body that returns a value, and an expression of `v`."""

    body: str
    expression: str


def outcomes_in_two_cells(preamble: str, imports: str, cases: list[Case]) -> list[str]:
    """What each expression gives, as `repr` tells it; a case that ends the check is refused, and the rest goes on."""
    outcomes: list[str] = []
    while len(outcomes) < len(cases):
        left = cases[len(outcomes) :]
        outcomes += _run_pair(preamble, imports, left)[: len(left)]
        if len(outcomes) < len(cases):
            outcomes.append(REFUSED)
    return outcomes


def outcomes_in_one_process(preamble: str, imports: str, cases: list[Case], documented: str) -> list[str]:
    """The same in one process; `documented` defines `carried(value)`, which applies the documented differences."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes")
        probes = _probes(cases, "carried(make({0}))", str(path))
        parts = [preamble, _program(imports, cases), f"{imports}\n{documented}\n{probes}"]
        source = f"for part in {parts!r}:\n    exec(part)"  # each compiled by itself: constants may be shared within
        file = Path(folder, "one.py")
        file.write_text(source)
        result = subprocess.run(
            [sys.executable, "-W", "ignore", str(file)], env=_ENVIRONMENT, capture_output=True, timeout=300
        )
        assert result.returncode == 0, result.stderr.decode()
        return _read(path)


def _program(imports: str, cases: list[Case]) -> str:
    functions = "\n".join(f"def make_{i}():\n" + _indented(case.body) for i, case in enumerate(cases))
    return f"{imports}\n{functions}\ndef make(i): return globals()[f'make_{{i}}']()"


def _probes(cases: list[Case], make: str, path: str) -> str:
    lines = [f"PATH = {path!r}", _RECORDER]
    for i, case in enumerate(cases):
        lines.append(
            f"def probe_{i}(v):\n    return {case.expression}\nrecorded({i}, lambda: {make.format(i)}, probe_{i})"
        )
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _read(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line.partition(" ")[2] for line in path.read_text().splitlines()]


def _run_pair(preamble: str, imports: str, cases: list[Case]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes")
        program = _program(imports, cases)
        tests = CheckTests("check", "make", f"{imports}\n{_probes(cases, 'make({0})', str(path))}", "", preamble)
        check = {
            "preamble": preamble,
            "source": tests.source,
            "invocation": "",
            "entry_point": "make",
            "unknown_names": [],
            "mutates_arguments": False,
            "own_fields": _own_fields(tests),
        }
        host, candidate = (
            _started(folder, CHECK_HOST, check),
            _started(folder, CANDIDATE, {"preamble": preamble, "program": program}),
        )
        try:
            _carry_frames(host[1], candidate[1])
        finally:
            for process, channel in (host, candidate):
                channel.close()
                process.kill()
                process.wait()
        return _read(path)


def _started(folder: str, runner: Runner, content: object) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    (Path(folder) / f"{runner.name}.json").write_text(json.dumps(content))
    (Path(folder) / f"{runner.name}.py").write_text(runner.source)
    start = f"import os, sys; os.dup2({theirs.fileno()}, 3)\n" if theirs.fileno() != 3 else ""
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            start + _PROCESS,
            f"{folder}/{runner.name}.json",
            f"{folder}/{runner.name}.py",
        ],
        env=_ENVIRONMENT,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    return process, ours


def _carry_frames(host: socket.socket, candidate: socket.socket) -> None:
    """In strict turns, until the check has ended."""
    sender, receiver = host, candidate
    while (frame := _frame(sender)) and frame[4:5] != b"E":
        receiver.sendall(frame)
        sender, receiver = receiver, sender


def _frame(channel: socket.socket) -> bytes:
    size = _exactly(channel, 4)
    return size + _exactly(channel, int.from_bytes(size, "big")) if size else b""


def _exactly(channel: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = channel.recv(size - len(content))
        if not part:
            return b""
        content += part
    return content
