"""Faults that name what the host ran out of, in place of a bare error number."""

import contextlib
import errno
import resource
from collections.abc import Generator

from autoclave.core import ExhaustedFault, SandboxFault

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


@contextlib.contextmanager
def named_faults(doing: str) -> Generator[None, None, None]:
    """Turn errors of the operating system while `doing` something into faults.

    Raises SandboxFault: with the exhausted resource and the fix.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SandboxFault):
            raise
        raise fault_of(doing, error) from error


def fault_of(doing: str, error: OSError) -> SandboxFault:
    """Return the fault for an error of the operating system while `doing` something."""
    kind = ExhaustedFault if error.errno in _SHORTAGES else SandboxFault
    return kind(f"{doing}: {cause_of(error)}")


def cause_of(error: OSError) -> str:
    """Return the exhausted resource with its fix, else the error itself."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process has no file descriptor left (limit {limit}): raise it with `ulimit -n`"
    if error.errno == errno.ENFILE:
        return "the host has no file descriptor left: raise fs.file-max"
    if error.errno == errno.EAGAIN:
        return "the host lets this user have no more processes: raise `ulimit -u`, or pids.max of the control group"
    if error.errno == errno.ENOMEM:
        return "the host is out of memory: have fewer judge.workers"
    return str(error)
