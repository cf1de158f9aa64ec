"""What is kept of actions on databases, in files that are whole or absent: rows before and after, and marks of commits.

The folder is the caller's; each action has one of its own in it. Rows are those of the database: nobody but the owner
of the state may read them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.core.files import sync_directory, write_atomically
from autoclave.runtime.databases.effects import Effect


class KeptRows:
    """Effects and marks by action and name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._last: tuple[str, str, Effect] | None = None

    def put(self, action: str, name: str, effect: Effect) -> None:
        """Keep an effect, durably."""
        self._write(action, f"{name}.json", effect.to_text().encode())
        self._last = action, name, effect

    def put_same(self, action: str, name: str, kept: str, effect: Effect) -> None:
        """Keep under a second name, durably, an effect that is kept under another one."""
        folder = self._folder / action
        self.forget(action, name)
        try:
            os.link(folder / f"{kept}.json", folder / f"{name}.json")
        except OSError:  # not every file system has a second name for a file
            self.put(action, name, effect)
        sync_directory(folder)
        self._last = action, name, effect

    def get(self, action: str, name: str) -> Effect:
        """An effect.

        Raises:
            InputError: it is not kept.
        """
        if self._last is not None and self._last[:2] == (action, name):
            return self._last[2]
        found = self._read(action, f"{name}.json")
        if found is None:
            raise InputError(f"action {action}: the rows that it changed are not kept any more")
        return Effect.from_json(found)

    def num_bytes(self, action: str, name: str) -> int:
        """What an effect takes."""
        return (self._folder / action / f"{name}.json").stat().st_size

    def put_mark(self, action: str, name: str, mark: Mapping[str, Any]) -> None:
        """Keep a mark, durably."""
        self._write(action, f"{name}.mark", json.dumps(mark).encode())

    def get_mark(self, action: str, name: str) -> Mapping[str, Any] | None:
        """A mark; None if there is none: nothing was committed under it."""
        return self._read(action, f"{name}.mark")

    def forget(self, action: str, name: str) -> None:
        """Forget one effect and its mark, if they are kept."""
        self._forget_last(action, name)
        for kind in ("json", "mark"):
            (self._folder / action / f"{name}.{kind}").unlink(missing_ok=True)

    def discard(self, action: str) -> None:
        """Forget all of an action. May be called again."""
        self._forget_last(action)
        shutil.rmtree(self._folder / action, ignore_errors=True)

    def _forget_last(self, action: str, *name: str) -> None:
        if self._last is not None and self._last[: 1 + len(name)] == (action, *name):
            self._last = None

    def _write(self, action: str, name: str, content: bytes) -> None:
        folder = self._folder / action
        if not folder.exists():
            folder.mkdir(mode=0o700)
            sync_directory(self._folder)
        write_atomically(folder / name, content)

    def _read(self, action: str, name: str) -> Any | None:
        try:
            content = (self._folder / action / name).read_bytes()
        except FileNotFoundError:
            return None
        return json.loads(content)
