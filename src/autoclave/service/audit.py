"""Audit log as JSON lines: hashes of programs, and their source only where `audit.sources` is set."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path

from autoclave.core import InputError


class AuditLog:
    """Appends one line per action in one write, so that several servers may share a file."""

    def __init__(self, path: Path, *, sources: bool = False) -> None:
        """Open the file, or create it readable by this user alone.

        Raises:
            InputError: it cannot be written.
        """
        self._sources = sources
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"audit.file {path}: cannot be written ({error.strerror})") from None

    def note(self, client: str, action: str, *, source: bytes | None = None, **what: object) -> None:
        """Record an action of a client. `source` is recorded as its sha256."""
        line = {"time": round(time.time(), 3), "client": client, "action": action, **what}
        if source is not None:
            line["program"] = hashlib.sha256(source).hexdigest()
            if self._sources:
                line["source"] = source.decode("utf-8", "replace")
        with self._lock:
            os.write(self._handle, f"{json.dumps(line)}\n".encode())

    def close(self) -> None:
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
