"""The file of signed checkpoints of a journal, with its key beside it."""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from autoclave.core import DataError
from autoclave.core.files import sync_directory
from autoclave.runtime.records import Checkpoint

_KEY_BYTES, _TAIL_BYTES = 32, 400


class CheckpointFile:
    """Created with its folder and key if missing. Raises OSError where that fails or the key is malformed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self.key = _key_in(path.with_name(f"{path.name}.key"))

    def has_any(self) -> bool:
        return self._path.exists() and self._path.stat().st_size > 0

    def last_count(self) -> int | None:
        """Return how many records the last checkpoint covers; None where none can be read."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError), self._path.open("rb") as file:
            file.seek(max(0, self._path.stat().st_size - _TAIL_BYTES))
            return int(json.loads(file.read().splitlines()[-1])["count"])
        return None

    def sign(self, count: int, head: bytes) -> Checkpoint:
        """Add a checkpoint: how many records there are, and the digest of the last. Durable on return."""
        checkpoint = Checkpoint.signed(count, head, self.key)
        line = {"count": count, "head": head.hex(), "signature": checkpoint.signature.hex()}
        with self._path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # a line that a crash cut short
            file.write(f"{json.dumps(line)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        return checkpoint

    def read(self) -> Iterator[Checkpoint]:
        """Yield all checkpoints. Raises DataError for a line that is damaged."""
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
            try:  # after the last line break: what a crash cut short
                given = json.loads(line)
                yield Checkpoint(int(given["count"]), bytes.fromhex(given["head"]), bytes.fromhex(given["signature"]))
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{self._path}:{number}: no checkpoint") from None


def _key_in(path: Path) -> bytes:
    """Return the key in a file that only its owner can read; create it if missing."""
    if not path.exists():
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: its key counts
            os.link(new, path)
        new.unlink()
        sync_directory(path.parent)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is not a valid key")
    return key
