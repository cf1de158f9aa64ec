"""Start tests with fresh standard streams, wait for them, and read what they printed: the judge's end of a test.

The system calls of a short test exist twice: in C (`_streams.c`), built with the package where there is a compiler, and
here in Python.
"""

import importlib
import os
import socket
from typing import Any, NamedTuple

from autoclave.core import HostError
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

    Raises SandboxFault: the cell has ended, or the host is exhausted.
    """
    try:
        if _compiled:
            return _compiled.start_test(connection.fileno(), stdin, channel)
        return _start_test(connection, stdin, channel)
    except OSError as error:
        raise fault_of("the cell does not take a test", error) from None


def run_tests(
    connection: socket.socket,
    tests: list[tuple[bytes, ...]],
    report_bytes: int,
    output_bytes: int,
    timeout_ms: int,
    kills: int,
) -> list[tuple[bytes, Any, Any]]:
    """Run tests in order, each with its input, while they end in time with status 0 and print what is given with it.

    Returns report and outputs (the fields of `Printed`) of each; of the last, if it runs, what has arrived of the
    report, and the descriptors of its outputs. In C, tests follow for some milliseconds, or until the kernel kills a
    process: then the content of the file `kills` changes (-1 if it never does). In Python none follows.

    Raises HostError: the compiled part is from before this function. SandboxFault: the cell has ended, or the host is
    exhausted.
    """
    if not _compiled:
        return [(b"", *start_test(connection, tests[0][0]))]
    try:
        return _compiled.run_tests(connection.fileno(), tests, report_bytes, output_bytes, timeout_ms, kills)
    except AttributeError:
        raise HostError(f"{_compiled.__file__}: is older than its source _streams.c. Fix: make setup") from None
    except OSError as error:
        raise fault_of("the cell does not take a test", error) from None


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
