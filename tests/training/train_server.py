"""A program: runs `autoclave` commands in forked children, so that the heavy libraries are loaded once.

Reads orders from standard input, one JSON object per line, and answers each with the exit code of its child:

    {"arguments": ["train", ...], "log": "file", "at": "pattern", "do": "kill" | "interrupt" | ...}

The child writes its output to `log`. What it prints, and every file operation of its Python code, is a moment such as
"said SFT step 10 of 40" or "open /runs/a/config.yaml"; at the first one that fits the pattern `at`, `do` happens:
"kill", "interrupt", "fill the disk" or "kill a worker" (the first process of a worker).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

import torch
import transformers  # noqa: F401  loaded for the children

import autoclave.compose.training  # noqa: F401  loaded for the children
from autoclave.cli import main

SMALL_FILE = 20_000
"""Bytes; less than the weights of any model."""


class Watch:
    """Does what the order says at the first moment that matches."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._pattern, self._deed = order.get("at"), order.get("do")

    def moment(self, text: str) -> None:
        """Act if `text` is the moment."""
        if not self._pattern or not re.search(self._pattern, text):
            return
        self._pattern = None
        if self._deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._deed == "interrupt":
            os.killpg(0, signal.SIGINT)  # as a terminal does: the cells of the judge get it too
        elif self._deed == "kill a worker":
            os.kill(min(worker_processes()), signal.SIGKILL)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILE, SMALL_FILE))

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A hook that makes file operations moments."""
        if self._pattern and event in ("open", "os.rename", "os.mkdir", "os.remove", "shutil.rmtree"):
            self.moment(f"{event} {arguments[0]}")


def worker_processes() -> list[int]:
    """Children of this process that a worker lives in."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"autoclave.workers.spawn_executor" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


class WatchedOutput:
    """Standard output whose lines are moments."""

    def __init__(self, file: TextIO, watch: Watch) -> None:
        self._file, self._watch = file, watch

    def write(self, text: str) -> int:
        """Write and watch."""
        written = self._file.write(text)
        self._file.flush()
        self._watch.moment(f"said {text}")
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def run(order: dict[str, Any]) -> None:
    """Carry an order out; never returns."""
    os.setpgid(0, 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    watch = Watch(order)
    sys.addaudithook(watch.audit)
    sys.stdout = WatchedOutput(sys.stdout, watch)
    sys.argv = ["autoclave", *order["arguments"]]
    main()


def serve() -> None:
    """Fork a child for each order, one at a time."""
    torch.set_num_threads(1)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the other threads"
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
        _, status = os.waitpid(pid, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    serve()
