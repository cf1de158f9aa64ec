"""Commands of `autoclave`, each in a fork of one process that has loaded what they need.

Starting an interpreter and importing the package takes ten times as long as most commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_SERVER = """
import atexit, json, os, signal, sys, threading
import autoclave.cli.act
from autoclave.cli import main
from autoclave.runtime import opening
from autoclave.runtime.databases import manager
from autoclave.runtime.rest import manager
from autoclave.runtime.vault import egress

def work(given):
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    signal.alarm(120)
    for number, (name, flags) in enumerate([("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY)]):
        os.dup2(os.open(f"{given['streams']}/{name}", flags), number)
    sys.argv = ["autoclave", *given["words"]]
    try:
        main()
    except SystemExit as end:
        return end.code or 0

for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work(given)
            threading._shutdown()
            atexit._run_exitfuncs()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ForkedCommands:
    """Runs commands in forks, for as long as the block lasts."""

    def __enter__(self) -> ForkedCommands:
        words = [sys.executable, "-c", _SERVER]
        self._server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=120)

    def run(
        self, folder: Path, *words: object, input: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder; return how it ended, as `subprocess.run` does."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as streams:
            for name in ("in", "out", "err"):
                Path(streams, name).write_text(input if name == "in" else "")
            environment = dict(os.environ if env is None else env)
            given: dict[str, Any] = {"folder": str(folder), "words": [str(each) for each in words], "streams": streams}
            self._server.stdin.write(json.dumps({**given, "environment": environment}) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline())
            out, err = (Path(streams, name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess([*map(str, words)], code, out, err)
