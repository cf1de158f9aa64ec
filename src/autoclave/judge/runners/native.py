"""Run a compiled program: the process of the test becomes it, with the test's standard streams and nothing else."""

import os
import resource
import signal
import struct
from typing import Any, NamedTuple

_STACK_BYTES = 256 << 20
_LOAD = 1


class NativeProgram(NamedTuple):
    """Path of the executable file, and the memory that it takes before it runs (its static data)."""

    path: str
    num_bytes: int


def prepare(content: bytes, place: Any) -> NativeProgram:
    """Place the program; raises ValueError when the content is not an executable file."""
    return NativeProgram(place("program", content), _static_bytes(content))


def run(test: Any) -> None:
    """Become the program. Does not return."""
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY and test.program.num_bytes > space:
        test.report("memory - 0")  # the kernel would kill it without a reason
        os._exit(1)
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these, and a new program would inherit that
    os.execve(test.program.path, ["program"], dict(os.environ))


def _static_bytes(content: bytes) -> int:
    """Sum of what the loadable segments of a 64-bit ELF file take in memory."""
    if content[:5] != b"\x7fELF\x02":
        raise ValueError("not an executable file")
    try:
        start, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", content, start + size * number) for number in range(count)]
    except struct.error:
        raise ValueError("not an executable file") from None
    return sum(header[6] for header in headers if header[0] == _LOAD)
