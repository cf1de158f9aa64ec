"""Notes beside the journal on the requests of an action: that one is being sent, and its answer.

A mark is durable before the first byte of its request, and an answer before anything is made of it. So after a death it
is known which requests cannot have reached the service, and which were answered. What is large is kept here as well, so
that the journal stays small.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory, write_atomically
from autoclave.core.json import canonical_json
from autoclave.runtime.rest.parts import Answer, Part, part_from

_INLINE_BYTES = 16 << 10
_KEPT = "$kept"


class Notes:
    """In the folder `folder`, one below it for each action, whose requests have names of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def mark_sent(self, action: str, request: str) -> None:
        """Note durably that a request is about to be sent; raise HostError, so that it is not, if the disk is full."""
        self._write(action, f"sent-{request}", json.dumps(time.time()))

    def sent_at(self, action: str, request: str) -> float | None:
        """Return when a request was sent, in seconds since 1970; None: it was not, for sure."""
        return self._read(action, f"sent-{request}")

    def note_answer(self, action: str, request: str, answer: Answer) -> None:
        """Note what a request was answered; durable when this returns."""
        self._write(action, f"answer-{request}.json", json.dumps(asdict(answer)))

    def answer(self, action: str, request: str) -> Answer | None:
        found = self._read(action, f"answer-{request}.json")
        return None if found is None else Answer(**found)

    def note_end(self, action: str, request: str, part: Part) -> None:
        """Note that a request has been dealt with, and what its effect was; durable when this returns."""
        self._write(action, f"end-{request}.json", json.dumps(part.to_json()))

    def end(self, action: str, request: str) -> Part | None:
        found = self._read(action, f"end-{request}.json")
        return None if found is None else part_from(found)

    def held(self, action: str, plain: Any) -> Any:
        """Return JSON data as it is, or, if it is large, what names it here."""
        content = canonical_json(plain)
        if len(content) <= _INLINE_BYTES and _KEPT.encode() not in content:
            return plain
        name = hashlib.sha256(content).hexdigest()
        if not (self._folder / action / name).exists():
            self._write(action, name, content)
        return {_KEPT: name, "num_bytes": len(content)}

    def recalled(self, action: str, plain: Any) -> Any:
        """Return the JSON data that `held` was given. Raises InputError where it is not kept any more."""
        if _KEPT not in plain:
            if _KEPT.encode() in canonical_json(plain):
                raise InputError(f"action {action}: what is kept of it is in the form of an earlier version")
            return plain
        name = Path(str(plain[_KEPT])).name
        try:
            content = (self._folder / action / name).read_bytes()
        except OSError:
            raise InputError(f"action {action}: what it replaced is not kept any more") from None
        if hashlib.sha256(content).hexdigest() != name:
            raise InputError(f"action {action}: what is kept of it was altered")
        return json.loads(content)

    def num_bytes(self, action: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return sum(each.stat().st_size for each in (self._folder / action).iterdir())
        return 0

    def forget(self, action: str) -> None:
        shutil.rmtree(self._folder / action, ignore_errors=True)

    def _read(self, action: str, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self._folder / action / name).read_text())
        return None

    def _write(self, action: str, name: str, content: str | bytes) -> None:
        folder = self._folder / action
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700)
                sync_directory(self._folder)
            write_atomically(folder / name, content)
            os.chmod(folder / name, 0o600)
        except OSError as error:
            raise HostError(f"{folder}: cannot be written ({error}). Fix: make room on its disk") from None


def age_s(at: float) -> float:
    """Return how long ago a point in time is, in seconds; endless where it is to come, since a clock was set back."""
    age = time.time() - at
    return age if age >= 0 else math.inf
