"""Run a runner in the zygote a few times, on a sample of its own, before there is any program.

Python caches lookups and specialises code that has run often. Each test would repeat that work in pages copied from the
zygote; after a warm-up it is done. The runner's `warm_up` returns the sample: content, standard input, and frames of
the channel. A runner cannot distinguish a warm-up from a test. Only caches of Python stay: the sample runs in a module
of its own, without the names of the preamble.
"""

import builtins
import gc
import os
import sys
import types
from typing import Any, NoReturn

from .process import be_test

_NUM_RUNS = 12
"""Python 3.11 specialises a function at its eighth run."""
_STDIN, _CHANNEL = 0, 3


class _LeftError(BaseException):
    """Raised in place of `os._exit`."""


def warm_up(runner: Any) -> None:
    """Have `runner` run its sample, each time in a fresh module.

    Raises RuntimeError: it does not leave the process with status 0.
    """
    content, stdin, frames = runner.namespace["warm_up"]()
    leave, modules, program_input = os._exit, dict(sys.modules), sys.stdin
    kept = {number: os.dup(number) for number in (_STDIN, _CHANNEL) if _is_open(number)}
    os._exit = _leave  # type: ignore[assignment]
    try:
        for _ in range(_NUM_RUNS):
            far_end = _give(stdin, frames)  # kept open, or the runner could not answer
            with open(_STDIN, encoding="utf-8", closefd=False) as sys.stdin:
                _run(runner, runner.prepare(content, _place))
            del far_end
    finally:
        os._exit = leave  # type: ignore[assignment]
        sys.stdin = program_input
        sys.modules.clear()
        sys.modules.update(modules)
        for number in (_STDIN, _CHANNEL):
            if number in kept:
                os.dup2(kept[number], number)
                os.close(kept[number])
            elif _is_open(number):
                os.close(number)
    gc.collect()


def _run(runner: Any, program: Any) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    try:
        be_test(runner, main, program, _tell)
    except _LeftError as left:
        if left.args != (0,):
            raise RuntimeError(f"the warm-up ended with status {left.args[0]}") from None
    else:
        raise RuntimeError("the warm-up did not end")
    finally:
        gc.disable()


def _give(stdin: bytes, frames: bytes) -> Any:
    """Place the sample's input at the descriptors of a test. Return the far end of the channel, if there is one."""
    reader, writer = os.pipe()
    os.write(writer, stdin)
    os.close(writer)
    os.dup2(reader, _STDIN)
    os.close(reader)
    if not frames:
        return None
    from _socket import SHUT_WR, socketpair  # only for runners with a channel: each fork copies its maps

    ours, theirs = socketpair()
    ours.send(frames)
    ours.shutdown(SHUT_WR)
    os.dup2(theirs.fileno(), _CHANNEL)
    return ours


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _leave(status: int) -> NoReturn:
    raise _LeftError(status)


def _tell(_account: bytes) -> None:
    """Discard the account of a warm-up."""


def _place(name: str, _content: bytes) -> str:
    return name
