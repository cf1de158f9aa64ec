"""Files and folders that are either whole or absent, and line-by-line reading in bounded memory.

`write_atomically` survives kill -9 at any moment: readers see the old content or the new, never a part.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any

from autoclave.core.compressed import DAMAGED, damage, open_plain
from autoclave.core.errors import CheckpointError, DataError, HostError, InputError, UsageError
from autoclave.core.json import parse_object

_PARTIAL = re.compile(r"\..*\.[0-9a-f]{8}\.partial")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_PAUSE_S = 0.005


@contextlib.contextmanager
def atomic_writer(path: Path, *, text: bool = True) -> Generator[IO[Any]]:
    """A file to write to that appears under `path` only when the block ends without an exception.

    The first write to a folder removes what writers left there that were killed.

    Raises InputError: nothing can be written under this name: it is a folder or a device, or its folder refuses.
    HostError: the disk is full or fails.
    """
    target = Path(os.path.realpath(path))  # a link stays, what it points to is replaced
    temporary = target.with_name(f".{target.name[:40]}.{os.urandom(4).hex()}.partial")
    handle = _new_file(path, target, temporary)
    try:
        with os.fdopen(handle, "w" if text else "wb", encoding="utf-8" if text else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(target)  # still locked, so that it cannot be taken for a file left behind
        sync_directory(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise HostError(f"{path}: cannot be written ({error.strerror}); the old content stays") from error
        raise


def _new_file(path: Path, target: Path, temporary: Path) -> int:
    if target.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: is not a regular file, so it cannot be replaced; give the name of a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        while True:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if temporary.exists():
                return handle
            os.close(handle)  # another process removed it before it was locked
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise HostError(f"{path}: cannot be written ({error.strerror})") from error
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


@cache
def _remove_stale(folder: Path) -> None:
    """Remove the temporary files in a folder that no living writer has locked. Once for each folder and process."""
    with os.scandir(folder) as entries:
        stale = [entry.path for entry in entries if _PARTIAL.fullmatch(entry.name) and entry.is_file()]
    for path in stale:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the content of `path` in one step that survives a crash."""
    with atomic_writer(path, text=isinstance(content, str)) as file:
        file.write(content)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """A folder to fill that appears under `path`, whole and durable, when the block ends without an exception.

    What was there under that name is replaced. Only one process at a time may do so.

    Raises HostError: the disk is full or fails.
    """
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    try:
        partial.mkdir(parents=True)
        yield partial
        make_durable(partial)
        drop_folder(path)
        partial.rename(path)
        sync_directory(path.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise HostError(f"{path}: cannot be written ({error.strerror})") from error
        raise


@contextlib.contextmanager
def alone_with(place: Path, complaint: str, wait_s: float = 0.0) -> Generator[None]:
    """Lock `place` against other processes of this machine; the lock is `<place>.lock` and ends with the process.

    Raises InputError: another keeps it for `wait_s` seconds; the message is `complaint`. Or no file can be made there.
    """
    lock = place.with_name(f"{place.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("ab")
    except OSError as error:
        raise InputError(f"{place}: cannot be used ({error}); give another place") from None
    with file:
        lock_file(file.fileno(), fcntl.LOCK_EX, complaint, wait_s)
        yield


def lock_file(descriptor: int, kind: int, complaint: str, wait_s: float = 0.0) -> None:
    """Lock an open file (`kind`: `LOCK_EX` or `LOCK_SH`). Raises InputError if it stays taken for `wait_s`."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise InputError(complaint) from None
        time.sleep(_PAUSE_S)


def drop_folder(path: Path) -> None:
    """Remove a folder if it is there; it is whole under its name until it is gone from there."""
    if path.exists():
        hidden = path.with_name(f".{path.name}.dropped")
        shutil.rmtree(hidden, ignore_errors=True)
        shutil.rmtree(path.rename(hidden))


def make_durable(folder: Path) -> None:
    """Make all files below `folder`, and their names, survive a crash of the machine."""
    for root, _, names in os.walk(folder):
        for name in names:
            handle = os.open(Path(root) / name, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(Path(root))


def sync_directory(path: Path) -> None:
    """Make renames and new names in the folder `path` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Folder of cached models, verdicts and responses: $AUTOCLAVE_CACHE, else the user's cache folder."""
    if given := os.environ.get("AUTOCLAVE_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autoclave"


def digest_of_folder(folder: Path) -> str:
    """sha256 of the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def existing_file(path: Path, what: str) -> Path:
    """`path` itself. Raises InputError: there is no such file, it is a folder, or it may not be read."""
    if os.path.isdir(path):
        raise UsageError(f"{what} {path}: is a folder; give a file")
    if not os.path.exists(path):
        raise UsageError(f"{what} {path}: no such file")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{what} {path}: may not be read by this user")
    return path


def read_jsonl(path: Path, what: str = "file", *, is_exact: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """`(where, object)` for each line that is not blank; `where` is `path:line`. Reads `.gz` and `.zst` too.

    `is_exact`: a number that would be rounded is refused.

    Raises InputError: the file is missing. DataError: a line is not UTF-8 or not a JSON object.
    """
    number = 0
    with open_plain(existing_file(path, what)) as file:
        try:
            for number, line in enumerate(file, start=1):
                where = f"{path}:{number}"
                if not line.strip():
                    continue
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from None
                yield where, parse_object(text, where, is_exact=is_exact)
        except DAMAGED as error:
            raise DataError(f"{path}:{number + 1}: {damage(path, error)}") from None


@contextlib.contextmanager
def checkpoint_data(path: Path) -> Generator[Any]:
    """The JSON data in a file of a checkpoint, for a block that fails where they have another form.

    Raises CheckpointError: the file is missing or damaged.
    """
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: damaged ({' '.join(str(error).split())[:120]})") from None


MANIFEST = "manifest.json"
FORMAT = "autoclave-manifest/1"

_PIECE = 1 << 20


def write_manifest(folder: Path) -> None:
    """Describe all files of `folder` in a file of it, which is there only when all others are: write it last.

    Raises OSError: a file cannot be read. HostError: the disk is full or fails.
    """
    files = {path.name: {"bytes": path.stat().st_size, "crc32": _checksum(path)} for path in sorted(folder.iterdir())}
    write_atomically(folder / MANIFEST, json.dumps({"format": FORMAT, "files": files}, indent=1) + "\n")


def check_manifest(folder: Path) -> None:
    """Read every file of `folder` and compare it with what `write_manifest` found.

    Raises CheckpointError: the manifest or a file is missing or damaged; the message begins with its path.
    """
    with checkpoint_data(folder / MANIFEST) as content:
        files = {name: (int(file["bytes"]), int(file["crc32"])) for name, file in content["files"].items()}
    for name, (size, checksum) in files.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        if path.stat().st_size != size:
            raise CheckpointError(f"{path}: damaged (it has {path.stat().st_size} bytes, written were {size})")
        if _checksum(path) != checksum:
            raise CheckpointError(f"{path}: damaged (its checksum is not that of what was written)")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum
