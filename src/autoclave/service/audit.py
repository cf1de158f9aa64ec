"""Logs as JSON lines: the access log, and the audit log, with hashes of programs and their source only where
`audit.sources` is set.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from autoclave.core import InputError
from autoclave.service.request_ids import request_id


class JsonLog:
    """Appends one line per event in one write, so that several servers may share a file. A file that was moved away is
    created again, as programs that rotate logs expect.
    """

    def __init__(self, path: Path, setting: str) -> None:
        """Open the file, or create it readable by this user alone. Raises `InputError` if it cannot be written."""
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self._opened()
        except OSError as error:
            raise InputError(f"{setting} {path}: cannot be written ({error.strerror})") from None

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: Mapping[str, object]) -> None:
        text = json.dumps({"time": round(time.time(), 3), **line})
        with self._lock:
            if not self._is_in_place():
                with contextlib.suppress(OSError):  # then lines go on to the old file
                    fresh = self._opened()
                    os.close(self._handle)
                    self._handle = fresh
            os.write(self._handle, f"{text}\n".encode())

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._handle))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1


class AuditLog(JsonLog):
    """Record of who ran what."""

    def __init__(self, path: Path, *, sources: bool = False) -> None:
        super().__init__(path, "audit.file")
        self._sources = sources

    def note(self, client: str, action: str, *, source: bytes | None = None, **what: object) -> None:
        """Record an action of a client. `source` is recorded as its sha256."""
        line: dict[str, object] = {"client": client, "action": action, "request": request_id.get(), **what}
        if source is not None:
            line["program"] = hashlib.sha256(source).hexdigest()
            if self._sources:
                line["source"] = source.decode("utf-8", "replace")
        self.write(line)
