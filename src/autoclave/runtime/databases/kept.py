"""What is kept of actions on databases, in files that are whole or absent: rows before and after, and marks of commits.

The folder is the caller's; each action has one of its own in it. Rows are those of the database: nobody but the owner
of the state may read them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from autoclave.core import InputError
from autoclave.core.files import sync_directory, write_atomically
from autoclave.runtime.databases.effects import Effect

_MARK = b'{"mark": '
"""Begins a line before an effect, with its mark."""
_SAME, _INVERSE = "=", "~"


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
        base, is_inverse = _base_of(name)
        if self._last is None or self._last[:2] != (action, base):
            found = self._read(action, f"{base}.json")
            if found is None:
                raise InputError(f"action {action}: the rows that it changed are not kept any more")
            effect = effect_of(found.partition(b"\n")[2] if found.startswith(_MARK) else found)
            self._last = action, base, effect
        effect = self._last[2]
        return effect.inverse() if is_inverse else effect

    def num_bytes(self, action: str, name: str) -> int:
        """What an effect takes."""
        return (self._folder / action / f"{_base_of(name)[0]}.json").stat().st_size

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


def inverse_of(name: str, kind: str) -> str:
    """A new name of the inverse of an effect, which is found by it without being kept itself."""
    base, is_inverse = _base_of(name)
    return f"{kind}-{token_hex(4)}{_SAME if is_inverse else _INVERSE}{base}"


def _base_of(name: str) -> tuple[str, bool]:
    """The name under which the rows of an effect are kept, and whether it is the inverse of what is there."""
    _, sign, base = name.partition(_INVERSE) if _INVERSE in name else name.partition(_SAME)
    return base or name, sign == _INVERSE


def effect_of(content: bytes) -> Effect:
    """The effect of which `Effect.to_bytes` made this."""
    header, has_rows, rows = content.partition(b"\n")
    if not has_rows:
        return Effect.from_json(json.loads(header))
    from autoclave.runtime.databases.sqlite.stored import StoredEffect

    return StoredEffect.from_parts(json.loads(header), rows)
