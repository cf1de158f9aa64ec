"""The zygote: a warm interpreter that has left the host behind and makes a cell for each program.

It is started afresh (exec, never a fork of the judge), so nothing the judge holds is in its memory. It never sees a
program either: the source goes straight to the cell. On its control socket it takes one JSON request at a time and
gives one answer; when the judge is gone it ends, and its cells with it.
"""

import builtins
import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys
import types
from _socket import CMSG_SPACE
from _socket import socket as Socket  # noqa: N812  the class under the name of a class
from typing import Any

from . import init, linux
from .enter import enter
from .process import LAST_NAME

_REQUEST_BYTES = 1 << 20
_VISIBLE_ENVIRONMENT = {"LANG", "TZ", "PYTHONHASHSEED"}  # the rest is for the loader of this interpreter


class Runner:
    """What runs in the process of a test: the names that a runner's source defines."""

    def __init__(self, name: str, source: str) -> None:
        self.namespace: dict[str, Any] = {"__name__": f"runner_{name}"}
        exec(compile(source, f"<{name}>", "exec", dont_inherit=True), self.namespace)

    def run(self, test: Any) -> None:
        self.namespace["run"](test)


class Zygote:
    """State of the zygote: its socket, its warm interpreter, and the cell that is open."""

    def __init__(self, control: Socket, judge: int) -> None:
        self._control = control
        self._judge = judge
        self._runners: dict[str, Runner] = {}
        self._main = types.ModuleType("__main__")
        self._test_id: int | None = None
        self._cell = 0

    def start(self) -> None:
        """Take the plan, confine this process and warm it up."""
        plan, _ = self._receive()
        self._test_id = plan["test_id"] if plan["ids"] == "range" else None
        _raise_badness()
        _limit_self(plan["stack_bytes"])
        enter(plan, self._ask_for_ids)
        self._warm_up(plan["profile"])
        self._answer({"ready": True})

    def serve(self) -> None:
        """Answer requests until the judge is gone."""
        while True:
            request, descriptors = self._receive()
            if request["do"] == "open":
                self._answer({"pid": self._open(request, descriptors[0])})
            elif request["do"] == "close":
                self._answer({"status": self._close()})

    def _open(self, request: "dict[str, Any]", descriptor: int) -> int:
        name = request["runner"]
        if name not in self._runners:
            self._runners[name] = Runner(name, request["runner_source"])
            gc.freeze()
        pid = linux.clone(linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
        if pid == 0:
            try:
                self._control.close()
                os.close(self._judge)
                init.be_first_process(descriptor, self._runners[name], self._main, self._test_id)
            finally:
                os._exit(70)
        os.close(descriptor)
        self._cell = pid
        return pid

    def _close(self) -> int:
        """Kill the open cell and say how its first process ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._cell, signal.SIGKILL)
        return os.waitpid(self._cell, 0)[1]

    def _ask_for_ids(self) -> None:
        self._answer({"ids": True})
        self._receive()

    def _warm_up(self, profile: "dict[str, Any]") -> None:
        import site

        site.setquit()  # `exit` and `quit`, which programs use, come from a module that is not run here
        for module in profile["modules"]:
            __import__(module)
        sys.setrecursionlimit(profile["recursion_limit"])
        sys.set_int_max_str_digits(profile["int_max_str_digits"])
        self._main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._main
        exec(compile(profile["preamble"], "<preamble>", "exec", dont_inherit=True), self._main.__dict__)
        self._main.__dict__[LAST_NAME] = self._main.__dict__.pop(LAST_NAME)
        sys.argv[:] = sys.orig_argv[:] = ["program.py"]
        for name in set(os.environ) - _VISIBLE_ENVIRONMENT:
            del os.environ[name]
        sys.path[:] = [path for path in sys.path if path.startswith(sys.base_prefix)]
        for name in [name for name in sys.modules if name.split(".")[0] == __name__.split(".")[0]]:
            del sys.modules[name]
        gc.collect()
        gc.freeze()
        gc.disable()

    def _receive(self) -> "tuple[dict[str, Any], list[int]]":
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._judge, select.POLLIN)
        ready = dict(poll.poll())
        if self._judge in ready:
            os._exit(0)
        message, ancillary, _, _ = self._control.recvmsg(_REQUEST_BYTES, CMSG_SPACE(4))
        if not message:
            os._exit(0)
        return json.loads(message), [int.from_bytes(data[:4], sys.byteorder) for _, _, data in ancillary]

    def _answer(self, answer: "dict[str, Any]") -> None:
        self._control.send(json.dumps(answer).encode())


def _raise_badness() -> None:
    """Should the host run out of memory, let it take the cells before anything else."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("800")


def _limit_self(stack_bytes: int) -> None:
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_STACK, stack_bytes),
    ):
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # Programs raise their stack limit themselves, out of habit; that must not fail.
        resource.setrlimit(kind, (value, hard if kind == resource.RLIMIT_STACK else value))


def main(control_descriptor: str) -> None:
    """Run the zygote. Ends the process."""
    judge = os.pidfd_open(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    zygote = Zygote(Socket(fileno=int(control_descriptor)), judge)
    zygote.start()
    quiet = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    os.close(quiet)
    zygote.serve()
