"""Start a test with fresh standard streams, wait for it, and read what it printed: the judge's end of one test.

The system calls of a short test exist twice: in C (`_streams.c`), built with the package where there is a compiler, and
here in Python.
"""

import contextlib
import importlib
import os
import select
import socket
from typing import Any, NamedTuple

from autoclave.sandbox.exhaustion import fault_of

try:
    _compiled: Any = importlib.import_module("autoclave.sandbox._streams")
except ImportError:
    _compiled = None

PIPE_BYTES = 1 << 16


def is_compiled() -> bool:
    """Return whether the compiled part of this module was built when the package was installed."""
    return _compiled is not None


class Printed(NamedTuple):
    """Output of a program on one stream, up to the cap, and the number of bytes discarded above it."""

    content: bytes
    num_cut: int


def start_test(connection: socket.socket, stdin: bytes, channel: int = -1) -> tuple[int, int]:
    """Start a test that reads `stdin` in a cell. Return the descriptors of its two outputs.

    Standard input is a read-only file in memory. Not a pipe: the room in one shrinks when a user has many, and then
    writing to it would never end. `channel` is the test's end of a socket, or -1.

    Raises:
        SandboxFault: the cell has ended, or the host is exhausted.
    """
    try:
        if _compiled:
            return _compiled.start_test(connection.fileno(), stdin, channel)
        return _start_test(connection, stdin, channel)
    except OSError as error:
        raise fault_of("the cell does not take a test", error) from None


def await_report(connection: socket.socket, size: int, timeout_ms: int) -> bytes:
    """Read what has arrived of a report of `size` bytes, when something arrived or the time is over."""
    if _compiled:
        return _compiled.await_report(connection.fileno(), size, timeout_ms)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    with contextlib.suppress(OSError):  # the caller that waits next gets it again
        if poll.poll(timeout_ms):
            return connection.recv(size, socket.MSG_DONTWAIT)
    return b""


def drain(descriptor: int, limit: int) -> Printed:
    """Read what is available, until the end of the stream or above `limit` bytes.

    Not to the end in any case: a fork of this process may hold the other side open.
    """
    if _compiled:
        return Printed(*_compiled.drain(descriptor, limit))
    parts: list[bytes] = []
    num_cut = 0
    while not num_cut and (content := read_some(descriptor)):
        parts.append(content[:limit])
        limit -= len(parts[-1])
        num_cut = len(content) - len(parts[-1])
    return Printed(b"".join(parts), num_cut)


def read_some(descriptor: int) -> bytes | None:
    """Read what is available; empty at the end of the stream, None when nothing has arrived yet."""
    try:
        return os.read(descriptor, PIPE_BYTES)
    except BlockingIOError:
        return None


def _start_test(connection: socket.socket, stdin: bytes, channel: int) -> tuple[int, int]:
    ours: list[int] = []
    theirs: list[int] = []
    try:
        theirs.append(_input_of(stdin))
        for _ in range(2):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            ours.append(reader)
            theirs.append(writer)
            os.set_blocking(reader, False)
        socket.send_fds(connection, [b"T"], theirs if channel < 0 else [*theirs, channel])
    except BaseException:
        _close(ours)
        raise
    finally:
        _close(theirs)
    return ours[0], ours[1]


def _input_of(content: bytes) -> int:
    memory = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(memory, left) :]
        return os.open(f"/proc/self/fd/{memory}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(memory)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
