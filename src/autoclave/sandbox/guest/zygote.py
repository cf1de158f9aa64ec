"""The zygote: a warm, confined interpreter that makes a cell for each program.

It is exec'ed, never a fork of the judge, so none of the judge's data are in its memory. It never sees a program either:
the source goes straight to the cell. Its control socket carries messages: first the plan, then a runner each (`R`, `1`
if it is to be warmed, else `0`, its source), and the messages about cells in `loops.py`. When the judge ends, the
zygote ends, and its cells with it.
"""

import builtins
import gc
import json
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

from . import linux
from .confinement import confinement_of
from .init import be_first_process
from .loops import loops_for
from .process import LAST_NAME
from .warm_up import warm_up

STACK_BYTES = 96 << 20
"""Main stack of a test: 50 000 frames of C and Python together fit."""
_MESSAGE_BYTES = 1 << 18
_OWN_MODULES = ("guest", "_cell")
_VISIBLE_ENVIRONMENT = {"LANG", "TZ", "PYTHONHASHSEED"}  # the rest is for the loader of this interpreter


class Runner:
    """Runner of a program in its cell: the names that a runner's source defines."""

    def __init__(self, source: str) -> None:
        self.namespace: dict[str, Any] = {"__name__": "runner"}
        exec(compile(source, "<runner>", "exec", dont_inherit=True), self.namespace)

    def prepare(self, content: bytes, place: "Callable[[str, bytes], str]") -> Any:
        return self.namespace["prepare"](content, place)

    def run(self, test: Any) -> None:
        self.namespace["run"](test)


class Zygote:
    """State of the zygote: its socket, its confinement and its warm interpreter."""

    def __init__(self, control: int, judge: int) -> None:
        self._control = control
        self._judge = judge
        self._runners: list[Runner] = []
        self._main = types.ModuleType("__main__")
        plan = self._receive()
        self._confinement = confinement_of(plan)
        self._loops = loops_for(self._confinement)
        _raise_badness()
        _limit_self()
        if linux.compiled:
            linux.compiled.use_huge_pages()
        tasks = os.open("/proc/self/task", os.O_RDONLY | os.O_DIRECTORY)  # a cell has no /proc
        self._confinement.enter(self._request_ids)
        try:
            self._warm_up(plan["profile"], plan.get("search_path", []))
            _refuse_threads(tasks)
        except Exception as error:  # noqa: BLE001  packages and preambles raise anything
            self._answer({"unfit": f"{type(error).__name__}: {error}"[:500]})
            os._exit(1)
        os.close(tasks)
        self._answer({"ready": True})

    def serve(self) -> None:
        """Make cells until the judge has ended."""
        while True:
            event = self._loops.next_cell(self._control, self._judge)
            if isinstance(event, bytes):
                self._add_runner(event[1:])
                continue
            socket, runner = event  # only the first process of a cell comes here
            be_first_process(socket, self._runners[runner], self._main, self._confinement, self._loops)

    def _add_runner(self, content: bytes) -> None:
        runner = Runner(content[1:].decode())
        self._runners.append(runner)
        failure = ""
        if content.startswith(b"1"):
            try:
                warm_up(runner)
            except BaseException as error:  # noqa: BLE001  without a warm-up tests are only slower
                failure = f"{type(error).__name__}: {error}"[:500]
        gc.freeze()
        self._answer({"error": failure})

    def _request_ids(self) -> None:
        self._answer({"ids": True})
        self._receive()

    def _warm_up(self, profile: "dict[str, Any]", search_path: "list[str]") -> None:
        import site

        site.setquit()  # `exit` and `quit`, which programs use, come from a module that is not run here
        sys.path[:] = [path for path in sys.path if path.startswith(sys.base_prefix)] + search_path
        for module in profile["modules"]:
            __import__(module)
        if "random" in sys.modules:
            sys.modules["random"].seed(0)  # a program that does not seed it gets the same numbers every time
        sys.setrecursionlimit(profile["recursion_limit"])
        sys.set_int_max_str_digits(profile["int_max_str_digits"])
        self._main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._main
        exec(compile(profile["preamble"], "<preamble>", "exec", dont_inherit=True), self._main.__dict__)
        self._main.__dict__[LAST_NAME] = self._main.__dict__.pop(LAST_NAME)
        sys.argv[:] = sys.orig_argv[:] = ["program.py"]
        for name in set(os.environ) - _VISIBLE_ENVIRONMENT:
            del os.environ[name]
        for name in [name for name in sys.modules if name.split(".")[0] in _OWN_MODULES]:
            del sys.modules[name]
        gc.collect()
        gc.freeze()
        gc.disable()

    def _receive(self) -> "dict[str, Any]":
        message = os.read(self._control, _MESSAGE_BYTES)
        if not message:
            os._exit(0)
        return json.loads(message)

    def _answer(self, answer: "dict[str, Any]") -> None:
        os.write(self._control, json.dumps(answer).encode())


def _refuse_threads(tasks: int) -> None:
    """Refuse packages that start threads: a fork copies one thread, and locks of others would stay locked."""
    num_threads = len(os.listdir(tasks))
    if num_threads > 1:
        raise RuntimeError(f"importing its packages left {num_threads - 1} threads running")


def _raise_badness() -> None:
    """Let the kernel kill cells first when the host runs out of memory."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("800")
    except OSError:
        pass


def _limit_self() -> None:
    for kind, value in ((linux.RLIMIT_CORE, 0), (linux.RLIMIT_MEMLOCK, 0), (linux.RLIMIT_MSGQUEUE, 0)):
        linux.lower_limit(kind, value)
    # Programs raise their stack limit themselves, out of habit; that must not fail.
    linux.lower_limit(linux.RLIMIT_STACK, STACK_BYTES, keep_hard=True)


def main(control: str) -> None:
    """Run the zygote on an inherited socket. Ends the process."""
    serve(int(control), os.pidfd_open(os.getppid()))


def serve(control: int, judge: int) -> None:
    """Run the zygote until `judge` is readable."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    zygote = Zygote(control, judge)
    quiet = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    os.close(quiet)
    zygote.serve()
