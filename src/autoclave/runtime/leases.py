"""A folder for one session: nobody else of ours works on it, above it or below it, wherever their state is.

The lock is on the folder itself, and a shared one on each folder above it, so a session on a folder and one on a folder
in it exclude each other. It ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from autoclave.core import InputError


@contextlib.contextmanager
def lease_of_folder(root: Path) -> Generator[None]:
    """Have a folder, given by its real path, for the length of the block.

    Raises:
        InputError: another session has it, or one above or below it.
    """
    with contextlib.ExitStack() as held:
        for folder in (root, *root.parents):
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except PermissionError:  # a folder above that may be passed through only: no session can be on it
                continue
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if folder == root else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                where = "it, or on a folder in it" if folder == root else f"{folder}, which it is in"
                raise InputError(f"root {root}: another session works on {where}; wait for it, or end it") from None
        yield
