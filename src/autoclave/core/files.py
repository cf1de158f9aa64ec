"""Files that are either whole or absent, and line-by-line reading in bounded memory.

`write_atomically` survives kill -9 at any moment: readers see the old content or the new, never a part.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from autoclave.core.errors import DataError, InputError
from autoclave.core.json import parse_object


@contextlib.contextmanager
def atomic_writer(path: Path, *, text: bool = True) -> Iterator[IO[Any]]:
    """A file to write to that appears under `path` only when the block ends without an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w" if text else "wb", encoding="utf-8" if text else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the content of `path` in one step that survives a crash."""
    with atomic_writer(path, text=isinstance(content, str)) as file:
        file.write(content)


def sync_directory(path: Path) -> None:
    """Make renames and new names in the folder `path` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def existing_file(path: Path, what: str) -> Path:
    """`path` itself.

    Raises:
        InputError: there is no such file, or it is a folder.
    """
    if path.is_dir():
        raise InputError(f"{what} {path}: is a folder; give a file")
    if not path.exists():
        raise InputError(f"{what} {path}: no such file")
    return path


def read_jsonl(path: Path, what: str = "file") -> Iterator[tuple[str, dict[str, Any]]]:
    """`(where, object)` for each line that is not blank; `where` is `name:line`. Reads `.gz` too.

    Raises:
        InputError: the file is missing.
        DataError: a line is not UTF-8 or not a JSON object.
    """
    opener = gzip.open if existing_file(path, what).suffix == ".gz" else open
    number = 0
    with opener(path, "rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                where = f"{path}:{number}"
                if not line.strip():
                    continue
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from None
                yield where, parse_object(text, where)
        except (EOFError, gzip.BadGzipFile) as error:
            raise DataError(f"{path}:{number + 1}: damaged gzip file ({error})") from None
