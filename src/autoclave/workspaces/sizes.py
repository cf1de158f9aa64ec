"""The size of what a command wrote, however deep."""

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path

_MOST_PATH = 2000
"""Bytes of a path passed to the kernel at once; its limit is 4096 bytes."""


def size_of(folder: Path) -> int:
    """Return the bytes on disk of all files below."""
    total, waiting = 0, [[str(folder)]]
    while waiting:
        *above, last = waiting.pop()
        is_long = len(os.fsencode(last)) > _MOST_PATH
        with contextlib.suppress(OSError), _opened([*above, last]) as descriptor, os.scandir(descriptor) as inside:
            for each in inside:
                if each.is_dir(follow_symlinks=False):
                    waiting.append([*above, last, each.name] if is_long else [*above, f"{last}/{each.name}"])
                else:
                    total += each.stat(follow_symlinks=False).st_blocks * 512
    return total


@contextlib.contextmanager
def _opened(pieces: Sequence[str]) -> Generator[int]:
    """Open the folder at a path, which is given in pieces."""
    with contextlib.ExitStack() as opened:
        place = None
        for piece in pieces:
            place = os.open(piece, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            opened.close()
            opened.callback(os.close, place)
        assert place is not None
        yield place
