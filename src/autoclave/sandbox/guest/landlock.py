"""Landlock: restrict the files that a process and its children may open, on hosts that refuse mount namespaces.

Needs no privilege. It covers opening, making, moving, linking and truncating. It does not cover `stat`, `chdir`, nor
changes of mode, owner, times and extended attributes; `filter.py` refuses the latter where users are shared.
"""

import fcntl
import os
import stat
import sys

from . import linux

_QUERY_VERSION = 1
_PATH_BENEATH = 1
_ABOVE_STREAMS = 16

_EXECUTE, _WRITE, _READ, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_CONTROL
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

READ_ONLY = _EXECUTE | _READ | _READ_FOLDER
LIST = _READ_FOLDER
REMOVE_FOLDERS = 1 << 4
READ_WRITE = _WRITE | _READ
"""For a device."""
EVERYTHING = (1 << 15) - 1
"""All but controlling devices."""

# Rights by version. Truncating came with 3, TCP with 4, devices with 5, scopes with 6.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
FIRST_WITH_TRUNCATE = 3
_FIRST_WITH_TCP = 4
FIRST_WITH_SCOPES = 6


def version() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    try:
        return linux.landlock_create_ruleset(None, _QUERY_VERSION)
    except OSError:
        return 0


class Ruleset:
    """Rules of files that may be opened. After `restrict` all others are refused, irrevocably."""

    def __init__(self) -> None:
        """Raises OSError where the kernel has no Landlock."""
        known = version()
        self._files = _KNOWN[min(known, 5)] if known else 0
        handled = [self._files]
        if known >= _FIRST_WITH_TCP:
            handled.append(_TCP)
        if known >= FIRST_WITH_SCOPES:
            handled.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
        made = linux.landlock_create_ruleset(b"".join(field.to_bytes(8, sys.byteorder) for field in handled))
        self.descriptor = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STREAMS)
        os.close(made)

    def allow(self, path: str, rights: int) -> None:
        """Allow `rights` for `path` and, if it is a folder, for all below it."""
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights &= self._files if stat.S_ISDIR(os.fstat(parent).st_mode) else self._files & _OF_FILES
            rule = rights.to_bytes(8, sys.byteorder) + parent.to_bytes(4, sys.byteorder)
            linux.landlock_add_rule(self.descriptor, _PATH_BENEATH, rule)
        finally:
            os.close(parent)

    def restrict(self) -> None:
        """Restrict this process and its future children, once. It must have renounced privileges before."""
        linux.landlock_restrict_self(self.descriptor)
        os.close(self.descriptor)
