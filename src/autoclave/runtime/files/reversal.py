"""Undo by a command that was proposed with the action, as GoEX has it: what it must bring back, and whether it did.

Nothing is kept for such an action, so it costs no room, whatever it changes. Instead its undo is tested before the
action is done: both run, one after the other, over a copy of the layer above the tree, which itself is only read.
Whether all is as it was is decided here and never by what a program prints. Pure but for looking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from autoclave.core.json import canonical_json
from autoclave.runtime.files.capture import Capture, without_marks
from autoclave.runtime.files.operations import Command, Python
from autoclave.runtime.files.scope import Entry, Scope

Compared = Literal["content", "names"]
"""`content`: all but times and inodes must be as it was; `names`: what things are called, and of what kind they are."""


def undoing_command(operation: Command) -> Command | None:
    """The command that takes an operation back, if one was proposed with it."""
    if not operation.undo:
        return None
    if isinstance(operation, Python):
        return operation.model_copy(update={"source": operation.undo, "undo": "", "stdin": ""})
    return operation.model_copy(update={"command": operation.undo, "undo": (), "stdin": ""})


def differences(left: Capture, written: Scope, tree: Scope, compared: Compared) -> Iterator[str]:
    """The paths that are not as in `tree` after an action and its undo, which left `left` in the folder `written`."""
    for step in left.steps:
        match step.do:
            case "set_facts":
                if compared == "content" and set(step.facts) - {"mtime_ns"}:
                    yield step.path
            case "exchange":
                if outline(left.brought[step.stash], written, compared) != outline(step.path, tree, compared):
                    yield step.path
            case _:
                yield step.path


def outline(path: str, scope: Scope, compared: Compared) -> str:
    """A digest of that which must be as it was, of what is at a path and below it; empty if nothing is there."""
    told = [[each.removeprefix(path), *_told(entry, compared)] for each, entry in scope.walk(path)]
    return hashlib.sha256(canonical_json(told)).hexdigest() if told else ""


def _told(entry: Entry, compared: Compared) -> list[object]:
    return [entry.kind] if compared == "names" else [replace(without_marks(entry), mtime_ns=0, shared=0)]
