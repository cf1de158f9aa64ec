"""A process that is short of file descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Generator


@contextlib.contextmanager
def free_descriptors(number: int) -> Generator[None, None, None]:
    """Only so many more descriptors can be opened by this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, hard))
    try:
        for descriptor in taken[len(taken) - number :]:
            os.close(descriptor)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken[: len(taken) - number]:
            os.close(descriptor)
