"""What is kept of actions on databases, in files that are whole or absent: rows before and after, and marks of commits.

The folder is the caller's; each action has one of its own in it. Rows are those of the database: nobody but the owner
of the state may read them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autoclave.core import InputError
from autoclave.core.files import sync_directory, write_atomically
from autoclave.runtime.databases.effects import AS_JSON, Effect

_MARK = b'{"mark": '
"""Begins a line before an effect, with its mark."""


class KeptRows:
    """Effects and marks by action and name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._last: tuple[str, str, Effect] | None = None
        """What was put or got last: an action that is run and undone is asked for its rows four times."""

    def put(self, action: str, name: str, effect: Effect, mark: Mapping[str, Any] | None = None) -> None:
        """Keep an effect, durably, and with it a mark."""
        head = b"" if mark is None else _MARK + json.dumps(mark).encode() + b"}\n"
        self._write(action, f"{name}.json", head + effect.to_bytes())
        self._last = action, name, effect

    def get(self, action: str, name: str) -> Effect:
        """An effect.

        Raises:
            InputError: it is not kept.
        """
        if self._last is None or self._last[:2] != (action, name):
            found = self._read(action, f"{name}.json")
            if found is None:
                raise InputError(f"action {action}: the rows that it changed are not kept any more")
            effect = effect_of(found.partition(b"\n")[2] if found.startswith(_MARK) else found)
            self._last = action, name, effect
        return self._last[2]

    def effect(self, action: str, told: Mapping[str, Any]) -> Effect:
        """The effect that JSON data of an action name: `images`, as they are kept (`forwards`) or their inverse."""
        effect = self.get(action, told["images"])
        return effect if told["forwards"] else effect.inverse()

    def num_bytes(self, action: str, name: str) -> int:
        """What an effect takes."""
        return (self._folder / action / f"{name}.json").stat().st_size

    def put_mark(self, action: str, name: str, mark: Mapping[str, Any]) -> None:
        """Keep a mark, durably."""
        self._write(action, f"{name}.mark", json.dumps(mark).encode())

    def get_mark(self, action: str, name: str) -> Mapping[str, Any] | None:
        """A mark; None if there is none: nothing was committed under it."""
        if (found := self._read(action, f"{name}.mark")) is not None:
            return json.loads(found)
        head = (self._read(action, f"{name}.json") or b"").partition(b"\n")[0]
        return json.loads(head)["mark"] if head.startswith(_MARK) else None

    def discard(self, action: str) -> None:
        """Forget all of an action. May be called again."""
        self._last = None
        shutil.rmtree(self._folder / action, ignore_errors=True)

    def _write(self, action: str, name: str, content: bytes) -> None:
        folder = self._folder / action
        if not folder.exists():
            folder.mkdir(mode=0o700)
            sync_directory(self._folder)
        write_atomically(folder / name, content)

    def _read(self, action: str, name: str) -> bytes | None:
        try:
            return (self._folder / action / name).read_bytes()
        except FileNotFoundError:
            return None


def effect_of(content: bytes) -> Effect:
    """The effect of which `Effect.to_bytes` made this."""
    header, has_rows, rows = content.partition(b"\n")
    if not has_rows:
        with contextlib.suppress(ValidationError):  # whose words hold values
            if header.startswith(b'{"tables":'):
                return AS_JSON.validate_json(header)
        raise ValueError("what is kept of an action is damaged")
    from autoclave.runtime.databases.sqlite.stored import StoredEffect

    return StoredEffect.from_parts(json.loads(header), rows)
