"""Files to read that may be compressed: gzip and zstd, by the end of their names, in bounded memory."""

import gzip
import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from autoclave.core.errors import InputError

COMPRESSION = 5
"""Level of gzip for files of a run: the default of 9 takes nine times as long for rollouts that are 5 % smaller."""
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of reading a compressed file that is cut off or damaged."""
_SLICE = 256
"""Compressed bytes of zstd that are taken at a time: four of them can stand for a block of 128 KiB."""
_WINDOW = 1 << 27


def is_compressed(path: Path) -> bool:
    """Return whether the file is one that `open_plain` decompresses."""
    return path.suffix in (".gz", ".zst")


def open_plain(path: Path) -> BinaryIO:
    """The content of a file, decompressed where its name ends in `.gz` or `.zst`.

    Raises InputError: it is a pipe: files of records are read more than once. ModuleNotFoundError: it is a zstd file,
    and `zstandard` is not installed.
    """
    if path.is_fifo():
        raise InputError(f"{path}: is a pipe, which can be read only once. Fix: write it to a file first")
    if path.suffix == ".zst":
        return cast("BinaryIO", io.BufferedReader(_ZstdFile(path)))
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def damage(path: Path, error: BaseException) -> str:
    """Description of the damage, after one of `DAMAGED`."""
    return f"damaged {'zstd' if path.suffix == '.zst' else 'gzip'} file ({error})"


class _ZstdFile(io.RawIOBase):
    """The content of a zstd file; frames may stand one behind the other. One that is cut off is an error."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._error: type[Exception] = zstandard.ZstdError
        self._fresh = lambda: zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        self._frame: Any = None
        self._packed = b""
        self._plain = memoryview(b"")
        self._file = path.open("rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            packed = self._packed or self._file.read(_SLICE)
            if packed:
                self._unpack(packed)
            elif self._frame is not None:
                raise EOFError("it ends in the middle")
            else:
                return 0
        size = min(len(buffer), len(self._plain))
        buffer[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        return size

    def _unpack(self, packed: bytes) -> None:
        frame = self._frame or self._fresh()
        try:
            self._plain = memoryview(frame.decompress(packed))
        except self._error as error:
            raise EOFError(str(error)) from None
        self._packed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame

    def close(self) -> None:
        self._file.close()
        super().close()
