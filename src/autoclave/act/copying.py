"""Copies of file content, with holes."""

import errno
import os

_PIECE = 1 << 20


def copy_data(source: int, target: int, size: int) -> None:
    """Copy the content of a file, without its holes."""
    place = 0
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
            end = os.lseek(source, place, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole is left
                raise
            break
        while place < end:
            piece = os.pread(source, min(_PIECE, end - place), place)
            if not piece:  # it was truncated meanwhile
                return
            place += os.pwrite(target, piece, place)
    os.ftruncate(target, size)
