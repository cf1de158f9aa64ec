"""Making what is new ready in the stash, durably, before a step brings it into the tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.runtime.files.scope import Entry, Kind
from autoclave.runtime.files.steps import sync_file_system

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class New:
    """Something that is made ready in the stash: a file with content, a folder, or a link.

    `below`: names, each in the one before, if it is not at the place itself but under new folders.
    """

    stash: str
    entry: Entry
    content: bytes = b""
    below: tuple[str, ...] = ()

    @property
    def inside(self) -> tuple[str, ...]:
        """The paths below its place, seen from there."""
        return tuple("/".join(self.below[: number + 1]) for number in range(len(self.below)))


def make(folder: Path, new: New) -> None:
    """Make something ready in a folder of the stash, durably. Raises OSError where it cannot be made.

    Goes from descriptor to descriptor: a path may be longer than the kernel takes.
    """
    *above, last = new.stash, *new.below
    place = os.open(folder, _FOLDER)
    try:
        for name in above:
            place = _made_folder(place, name, new_entry("folder", 0o755))
        match new.entry.kind:
            case "link":
                os.symlink(new.entry.target, last, dir_fd=place)
            case "folder":
                place = _made_folder(place, last, new.entry)
            case _:
                _make_file(place, last, new)
        os.fsync(place)
    finally:
        os.close(place)
    if above:
        sync_file_system(folder)


def new_entry(kind: Kind, mode: int, **others: Any) -> Entry:
    """Return what something new of this user is like."""
    return Entry(kind, mode, os.geteuid(), os.getegid(), 0, **others)


def _made_folder(parent: int, name: str, entry: Entry) -> int:
    """Make a folder; its descriptor, in place of that of the folder that it is in."""
    os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    os.close(parent)
    _set_facts(descriptor, entry)
    return descriptor


def _make_file(parent: int, name: str, new: New) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
    with open(descriptor, "wb") as file:
        file.write(new.content)
        file.flush()
        _set_facts(descriptor, new.entry)
        os.fsync(descriptor)


def _set_facts(descriptor: int, entry: Entry) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.uid, entry.gid)
    for name, value in entry.attributes:
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, entry.mode)
